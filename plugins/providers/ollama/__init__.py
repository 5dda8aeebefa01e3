"""Ollama.

address     Where an Ollama server is, out of the many spellings of OLLAMA_HOST.
chat        The `ollama` chat provider
embeddings  The embedding provider `ollama`
errors      What errors of an Ollama server mean.
protocol    Ollama's chat on the wire
"""
