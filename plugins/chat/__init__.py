"""Chat providers: where answers come from. Each provider is the module of its name, with what is its own beside it.

    openai      over chat completions (openai_wire) or the Responses API (openai_responses, with
                openai_responses_request, openai_responses_answer, openai_responses_thoughts); openai_models,
                openai_listing, openai_errors
    anthropic   anthropic_request, anthropic_answer, anthropic_thoughts, anthropic_models, anthropic_errors
    gemini      gemini_request, gemini_answer, gemini_signatures, gemini_errors
    ollama      ollama_wire, ollama_address, ollama_listing, ollama_errors
    local       a model file in a subprocess: local_model, local_process, local_worker, local_prompt, local_answer
    scripted    no model at all, for tests
    servers_nearby   llama-server and LM Studio, and whether a server runs on this machine

What they share:

    keys, copied_key   one key after the other; keys as people paste them
    limits             how much models take in and say: what their servers told, else `limits.toml`
    listing            which models a server has
    pictures           what each vendor takes
    remembered         conversations as they were last encoded
    loose_json         JSON as servers and models write it
    reported_counts    token counts as servers report them
    tool_names         names of tools as services take them
"""
