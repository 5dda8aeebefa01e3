"""What keeps the context small: the built-in decisions about it.

tool_pruning    old tool results are shortened, then cleared, by the figures of `[pruning]`
silent          the answer `NO_REPLY`, which nobody is shown
"""
