"""What models are told, in each language: a language is one file here, such as `en.toml`, with every text.

language   the texts of a language, and which there are
"""
