"""Models that run on this machine.

bundled_model       The bundled chat model
chat                The chat provider `local`
embeddings          The embedding provider `local`
gguf                Embedding models as GGUF files (`memory.embedding.local_model_path`)
in_process          An embedding model in a subprocess
installable_models  The embedding models that can be installed as packages
minilm_model        all-MiniLM-L6-v2 (Apache-2.0), quantised to 8 bits
process             The subprocess that holds a local model
reply               A chat request: its prompt, and the reply of the subprocess
worker              The program that runs in the subprocess
"""
