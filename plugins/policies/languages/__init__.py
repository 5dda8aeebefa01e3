"""The prompts that models are sent, one file per language.

prompts  Loading the prompts of a language.
"""
