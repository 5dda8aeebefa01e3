"""What keeps the context small: the built-in decisions about it.

tool_pruning    old tool results are shortened, then cleared, by the figures of `[pruning]`
silent          the answer `NO_REPLY`, which nobody is shown
fencing         what leaves, as data between marks, in pieces that fit
asking          asking a model about it, piece by piece
memory_flush    what of it must last, for the day's note
sections        the form of a summary
identifiers     what must be kept letter by letter
"""
