"""Model selection: open providers, fallback, and requests outside the conversation.

breaker            A circuit breaker for each provider.
call               Calls to models: the only loop over a provider's stream.
fallback           The models that may answer a turn, in order.
guarded_providers  Third-party providers whose calls cannot harm the gateway.
listings           The model lists of providers, cached.
model_list_cache   `HOME/models.json`.
providers          The open providers, replaced when their settings change, or opened for a command's own requests.
registry           The resolution of model names, and the choice of `auto`.
spending/          The prices of models, and who pays for what.
token_counts       Exact token counts, in a separate process.
transcription      Transcribing recordings with the configured model.
"""
