"""One turn: from the received messages to the durable answer.

answering           One answer of a model within a turn.
conversation_files  The attachments of a conversation on their way to models.
inbox               Waiting messages, and the rules of the queue modes.
offered_tools       The tools that a model is offered.
preparation         The preparation of a turn's first request.
recalling           Recall of relevant passages of the memory.
scrubbing           Removal of secrets from events.
streaming_reply     The answer that is being streamed.
tool_calls          The tool calls of a turn.
turn                The turn itself.
typed_commands      The slash commands of a conversation.
"""
