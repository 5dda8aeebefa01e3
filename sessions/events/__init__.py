"""Events, messages and their encoding: the values that all other packages use.

codec           Encoding of events as lines of JSON, each chained to the line before
errors          Exceptions of this layer
events          The kinds of event in a journal
file_types      Detection of file types from content
messages        The messages and tools of a request to a model
pruning         Edits of the model's view
token_features  The approximate composition of a request in tokens
tokens          A fast token estimate
vision          Visibility of attachments to a model
"""
