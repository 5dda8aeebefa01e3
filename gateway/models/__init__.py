"""Which model answers, and who answers when it cannot.

choosing        the model of a session: named, or `auto`
fallback        who answers when it cannot
breaker         whether a provider is asked at all
asides          which models asked to be left alone, and until when
open_providers  the providers that are open, each on its own settings
briefly         the same for a command that asks them something
missing_models  which models there are, said where one is not
sound_replies   a provider's reply, checked, with counts within bounds
listings        the models that the providers' servers list
told            `HOME/models.json`: what the vendors told of their models
"""
