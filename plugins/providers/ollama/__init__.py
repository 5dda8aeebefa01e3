"""Ollama.

address     The URL of an Ollama server from the notations of OLLAMA_HOST
chat        The `ollama` chat provider
embeddings  The embedding provider `ollama`
errors      The errors of an Ollama server
protocol    Requests and responses of Ollama's chat API
"""
