"""The test kit: tests that everybody who provides a thing can inherit, so that his does what the house relies on.

Plain pytest runs them; the house's own plugins run them too. Each check's docstring says how to mend what it finds.

What is inherited:

    embedding_provider   an `EmbeddingProvider`, in this process or behind a service
    memory_backend       a `MemoryBackend`

What stands in for the services:

    faults               a server that answers, and the ways in which an answer goes wrong
    openai_server        OpenAI's chat completions
    embedding_server     a service that makes vectors, by itself one like OpenAI's

What the checks are made of:

    checks       a test that ends in time and says how to mend what failed
    furnishing   a `House` for a test; clock: one that is set
    failing      what is asked of an error
"""

import sys

if (pytest := sys.modules.get("pytest")) is not None:
    # Authors see the values of a failed check, as in a test of their own.
    pytest.register_assert_rewrite(*(f"{__name__}.{name}" for name in ("embedding_provider", "failing", "memory_backend")))
