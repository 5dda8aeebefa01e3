"""The built-in chat and embedding providers.

anthropic/     Anthropic
gemini/        Google Gemini
hosted/        Code shared by providers of hosted models
local/         Models that run on this machine
local_servers  Providers for model servers on this machine that need no key
ollama/        Ollama
openai/        OpenAI and compatible servers
scripted       The provider `scripted`, without a model
"""
