"""Channels: messaging services, by which people and conversations reach each other.

channel_inbox      The acceptance of a channel's messages: who speaks, and in which conversation.
channel_instances  The channels that a configuration names.
channel_runner     The channels that are open: one that fails is opened again.
reply_delivery     The delivery of answers to channels.
"""
