"""The OpenAI-compatible API.

answer_reducer   Reduces a session's frames to the answer to one message.
api              Routing of requests below `/v1`, limits and errors.
api_errors       Errors in OpenAI's format.
embeddings       `POST /v1/embeddings`.
exchanges        Reads the body of a request, and writes its answer while the client is connected.
model_names      Model names and `/v1/models`.
request_parser   Converts a request body to a context and options.
response_writer  Writes an answer as JSON or as an event stream.
responses        The Responses API.
schema           The schema of a chat completion request.
session_mode     Chat completions in a session.
stateless_mode   Chat completions without a session.
transcriptions   Transcriptions and translations of recordings.
"""
