"""An exact tokenizer, for what is worth a process of its own: `/context` and the benchmarks. A turn never waits for it.

    counting     tokens of texts, by a process that is gone afterwards
    worker       what runs in that process

Beside them `o200k_base.tiktoken.xz`, the vocabulary of that name as OpenAI publishes it for tiktoken (`worker.DIGEST` is the
SHA-256 of the unpacked file), and its licence.
"""
