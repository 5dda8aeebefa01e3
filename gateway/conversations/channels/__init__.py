"""Channels of plugins: messages in, replies out.

channel_inbox  Where a channel hands in what arrives
delivery       Answers on their way to the channels
runner         The channels of plugins, kept open
"""
