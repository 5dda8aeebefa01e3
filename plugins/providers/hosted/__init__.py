"""What providers of hosted models share.

accounts           Where an embedding provider asks, and with whose key.
batch_limits       How much a server takes at once
embedding_errors   What it means that a server refuses to embed
encoding_cache     Conversations as they were last encoded
hosted_embeddings  An embedding model that a server runs
images             Pictures in requests
keys               A provider's keys
known_models       What is known of embedding models without asking anyone
model_limits       How much models take in and say
model_listing      Which models a server has, from the list that every vendor gives away for nothing.
openai_errors      What errors mean in OpenAI's API, whether they come as a status or inside a stream, and from
                   whichever server.
tool_names         Names of tools as services take them.
"""
