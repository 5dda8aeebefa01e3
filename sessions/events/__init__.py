"""Events, messages and their encoding: the values that everything else is made of.

codec           One event ⇄ one line of JSON, chained to the line before.
errors          What can go wrong on this floor, as one small tree.
events          The vocabulary of the log
file_types      What a file is, told from its own bytes
messages        What a model is shown
pruning         Edits of what the model is shown
token_features  `TokenFeatures`
tokens          How many tokens a text is, estimated from its characters and script.
vision          What a model sees of the files in a conversation
"""
