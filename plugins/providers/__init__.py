"""The built-in chat and embedding providers.

anthropic/     Anthropic.
gemini/        Google Gemini.
hosted/        What providers of hosted models share.
local/         Models that run on this machine.
local_servers  Model servers that may run on this machine and need no key
mistral        The embedding provider `mistral` (docs.mistral.ai
ollama/        Ollama.
openai/        OpenAI, and servers that speak its API.
scripted       `scripted`
voyage         The embedding provider `voyage` (docs.voyageai.com
"""
