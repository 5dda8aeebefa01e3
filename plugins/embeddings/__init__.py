"""What turns texts into vectors.

local        the bundled model, in a thread of its own
minilm_model its weights and its tokenizer, loaded
"""
