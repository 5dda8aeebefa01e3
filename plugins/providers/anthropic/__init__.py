"""Anthropic.

chat       The `anthropic` chat provider
errors     The errors of Anthropic's API
reasoning  Thinking blocks, kept in a reply's `opaque` between a tool call and its result
request    A context as the body of a request to Anthropic's Messages API (`POST /v1/messages`)
stream     The events of Anthropic's stream as a reply
"""
