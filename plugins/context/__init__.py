"""What keeps the context small: the built-in decisions about it.

tool_pruning     old tool results are shortened, then cleared, by the figures of `[pruning]`
silent           the answer `NO_REPLY`, which nobody is shown

Flush and summary:

condensers       how they are registered, without importing the rest
fencing          what leaves, as data between marks, in pieces that fit
asking           asking a model about it, piece by piece
memory_flush     what of it must last, for the day's note
model_summary    the summary that stands in its place, by a model
summary_prompts  what the model is told
summary_checks   what is wrong with what it answers
completing       what it left out, added by hand
sections         the form of a summary
extract          the summary that no model writes
page             the page that it fills line by line
mentions         which identifiers matter most
said             what is said in what leaves, without what was corrected
sentences        sentences, and which of them decide, wish or correct
identifiers      what must be kept letter by letter
"""
