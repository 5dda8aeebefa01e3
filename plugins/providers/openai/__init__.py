"""OpenAI, and servers with its API.

chat              The `openai` chat provider
chat_completions  Requests and replies of OpenAI's chat completions
embeddings        The embedding providers `openai`, `voyage` and `mistral`
models            The list of models of servers with OpenAI's API (`GET /models`)
responses         Requests of OpenAI's Responses API
responses_reply   Its replies: their stream, and their reasoning in later requests
transcriptions    Requests and responses of OpenAI's transcriptions
"""
