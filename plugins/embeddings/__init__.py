"""What turns texts into vectors.

local        the bundled model, in a thread of its own
minilm_model its weights and its tokenizer, loaded

openai, gemini, voyage, mistral, ollama   what each of them is asked and answers
hosted       what is the same for all of them: a model that a server runs
accounts     where they ask, and with whose key
known_models what is known of a model: the table `models.toml`
portions, pieces   how much a server takes at once; texts laid out over requests
vectors      whether what comes back are vectors
refused      what it means that a server refuses
resting      a server that will fail again is let be for a while
"""
