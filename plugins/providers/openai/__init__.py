"""OpenAI, and servers with its API.

chat                 The `openai` chat provider
chat_completions     Requests and responses of OpenAI's chat completions
embeddings           The embedding provider `openai`
models               The list of models of servers with OpenAI's API (`GET /models`)
responses            OpenAI's Responses API
responses_reasoning  Reasoning and compaction items of a reply, kept in its `opaque`
responses_request    A context as the body of a request to OpenAI's Responses API (`POST /v1/responses`)
responses_stream     The events of OpenAI's Responses API as a reply
"""
