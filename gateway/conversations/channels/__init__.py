"""Channels of plugins: messages in, replies out.

channel_inbox  The inbox of a channel.
delivery       Delivery of answers to channels.
runner         Runs the channels of plugins.
"""
