"""One turn: from the received messages to the durable answer.

answering           One answer of a model within a turn
conversation_files  The files of one conversation, on their way to models
inbox               What waits in a session, and which of it is taken next
offered_tools       The tools that the model is offered now, by what `agent.workspace_access` lets it do with the
                    workspace.
recalling           Recall before a turn
scrubbing           Events without secrets
streaming_reply     The answer that is being streamed
tool_calls          The tool calls of a turn
turn                One turn, in a straight line
typed_commands      The commands that are typed in a conversation
"""
