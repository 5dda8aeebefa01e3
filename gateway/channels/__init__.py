"""Channels of plugins: messages from elsewhere come in, and answers go back there.

desk         who may speak, in which conversation, and a message that is taken
running      the channels, kept open
delivering   answers, delivered until they have arrived
"""
