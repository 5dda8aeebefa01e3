"""The OpenAI-compatible API.

answer_reducer   What of a session's frames answers one message
api              The API
api_errors       Refusals in OpenAI's form
embeddings       `POST /v1/embeddings`
image_urls       Pictures that a client sends as `data:` addresses
in_flight        What is in hand
model_names      The names of models at this door
replies          Answers in OpenAI's form
request_parser   What a client asked, in the house's own values
response_writer  Saying an answer to a client
schema           What a client may send to `POST /v1/chat/completions`, after OpenAI's API reference
session_mode     A chat completion in a session
stateless_mode   A chat completion without a session
"""
