"""IRC, spoken on asyncio's streams: the smallest built-in channel, and an example of how to write one.

irc_channel     The channel: which messages are received, and how replies are delivered
irc_connection  A registered connection: capabilities, login, nick, flood limit, and whether lines were accepted
irc_formatting  Markdown as lines of IRC
irc_lines       The lines of the protocol
irc_settings    The keys of a table of this kind
"""
