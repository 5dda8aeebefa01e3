"""Model selection: open providers, fallback, and requests beside the conversation.

breaker              Whether a provider is asked at all
fallback             Who answers a turn
listings             The models that the providers have by their servers' own lists, asked for seldom and not for
                     long.
model_list_cache     `HOME/models.json`
providers            The providers that are open, each on its own settings; one whose settings change is opened anew
                     while turns run.
registry             Which models answer
side_requests        Asking a model something beside the conversation
sound_replies        A provider's reply as everybody who asks a model may rely on it.
temporary_providers  The providers as a command opens them that asks them something, whether a gateway runs on the
                     home or not.
tokenizer/           Exact token counts, in a process of their own.
"""
