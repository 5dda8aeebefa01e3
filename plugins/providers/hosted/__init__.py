"""Code shared by providers of hosted models.

accounts           The address and the key of an embedding provider
batch_limits       The size of embedding requests
embedding_errors   Errors of embedding servers
encoding_cache     A cache of encoded conversations
hosted_chat        The base class of chat providers
hosted_embeddings  The base class of embedding providers
images             Images in requests
keys               The API keys of a provider
known_models       Known properties of embedding models
model_limits       The token limits of models
model_listing      Requests for a server's list of models
openai_errors      The errors of OpenAI's API and compatible servers
tool_names         Names of tools in requests
"""
