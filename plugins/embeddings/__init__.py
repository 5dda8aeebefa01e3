"""What turns texts into vectors.

local        a model on this machine; questions before notes
local_models which can be installed as packages
minilm_model the bundled one, loaded
gguf         any other as a GGUF file
in_thread    a model in threads of the gateway
in_process   a model in a process of its own

openai, gemini, voyage, mistral, ollama   what each of them is asked and answers
hosted       what is the same for all of them: a model that a server runs
accounts     where they ask, and with whose key
known_models what is known of a model: the table `models.toml`
portions, pieces   how much a server takes at once; texts laid out over requests
vectors      whether what comes back are vectors
refused      what it means that a server refuses
resting      a server that will fail again is let be for a while
"""
