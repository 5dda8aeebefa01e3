"""Anthropic.

chat       The `anthropic` chat provider
errors     What errors of Anthropic's API mean, whether they come as a status or inside a stream.
reasoning  A reply's signed thoughts, as `opaque` keeps them between a model's call of a tool and the tool's result.
request    A context as the body of a request to Anthropic's Messages API (`POST /v1/messages`).
stream     The events of Anthropic's stream as a reply.
"""
