"""Events, messages and their encoding: the values that all other packages use.

codec            Encoding of events as lines of JSON, each chained to the line before
errors           Exceptions of this layer
events           The kinds of event in a journal
file_types       Detection of file types from content
handed_messages  Messages that no person has sent: of conversations to each other, and of the heartbeat
messages         The messages and tools of a request to a model
pruning          Edits of the model's view
tokens           Estimates of tokens: of a text, and of a request by kind of text
vision           Visibility of attachments to a model
"""
