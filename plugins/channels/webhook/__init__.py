"""Webhooks, for every service that has no channel of its own: signed requests in and out.

hook_messages    What a request contains, and its signature
webhook_channel  The channel
"""
