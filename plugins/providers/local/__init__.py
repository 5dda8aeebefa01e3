"""Models that run on this machine.

bundled_model       The bundled chat model
chat                The chat provider `local`
embeddings          The embedding provider `local`
gguf                Any embedding model as a GGUF file, which `memory.embedding.local_model_path` names, run by
                    llama.cpp in a subprocess.
in_process          A model in a subprocess
installable_models  The embedding models that can be installed as packages
minilm_model        all-MiniLM-L6-v2 (Apache-2.0), quantised to 8 bits
process             The subprocess that holds a local model, for chat or for vectors, as the gateway sees it
prompt              What a small local model is shown of a context
stream              One answer of a local model
worker              What runs in the subprocess
"""
