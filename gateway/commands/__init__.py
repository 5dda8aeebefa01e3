"""What is typed after a slash, and what it sees.

parsing, view    which text is a command; what it sees of its conversation, and may do; memory_view: of the memory
surroundings     what all commands share
status           `/status` in words
compactions      what was compacted, for people
context_report   what the next request would hold, for `/context`
memory_report    what is remembered, for `/memory`
sentences        sentences that stand in more than one place
"""
