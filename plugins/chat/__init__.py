"""Chat providers: where answers come from. Each module is one provider; `openai_wire` and `local_*` are parts of theirs."""
