"""Channels: messaging services, by which people and conversations reach each other.

channel_inbox      The acceptance of a channel's messages: who speaks, and in which conversation.
channel_instances  The channels that a configuration names.
channel_probe      Trying a channel on request: a check, and a post.
channel_runner     The channels that are open: one that fails is opened again.
pairing_requests   The codes by which unknown senders ask to be admitted.
pairings           The log of the addresses that are linked to persons.
reply_delivery     The delivery of answers to channels.
sender_limits      The limit of messages that each sender may send.
senders            Who a sender is: the configuration, the paired addresses, and unknown senders.
turn_activity      What channels show while a turn runs: typing, or a draft.
"""
