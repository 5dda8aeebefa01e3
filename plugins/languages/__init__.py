"""The texts that models are sent, one file per language.

prompts  The texts of a language, as its file has them
"""
