"""Anthropic.

chat     The `anthropic` chat provider
errors   The errors of Anthropic's API
reply    A reply: its stream, and its thinking in later requests
request  A context as the body of a request to Anthropic's Messages API
"""
