"""OpenAI, and servers that speak its API.

chat                 The `openai` chat provider
chat_completions     OpenAI's chat completions on the wire
embeddings           The embedding provider `openai`
models               What servers that speak like OpenAI tell of their models in `GET /models`.
responses            The second tongue of the `openai` provider
responses_reasoning  What of a reply over OpenAI's Responses API must come back beside its text and calls, as
                     `opaque` keeps it.
responses_request    A context as the body of a request to OpenAI's Responses API (`POST /v1/responses`).
responses_stream     The events of OpenAI's Responses API as a reply.
"""
