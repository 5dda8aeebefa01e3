"""Fake servers for tests of providers.

embedding_server  A fake of a service that makes vectors
faulty_server     What the fakes of the providers share
openai_server     A fake of OpenAI's chat completions, strict where the real one is, and faulty where a test says
                  so.
"""
