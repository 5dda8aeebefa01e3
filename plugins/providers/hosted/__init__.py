"""Code shared by providers of hosted models.

accounts           The address and the key of an embedding provider
batch_limits       The size of embedding requests
embedding_errors   Errors of embedding servers
encoding           Encoding requests: a cache of conversations, names of tools
hosted_chat        The base class of chat providers
hosted_embeddings  The base class of embedding providers
hosted_provider    The base class of both
images             Images in requests
keys               The API keys of a provider
known_models       Known limits and properties of models
model_listing      Requests for a server's list of models
openai_errors      The errors of OpenAI's API and compatible servers
think_tags         Reasoning in the text of a reply
"""
