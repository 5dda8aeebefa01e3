"""One turn: from the received messages to the durable answer.

answering        One answer of a model within a turn.
inbox            Waiting messages, and the rules of the queue modes.
live_output      The output of a running tool.
recalling        Recall of relevant passages of the memory.
scrubbing        Removal of secrets from events.
streaming_reply  The answer and the tool output that are being streamed.
titles           Titles made by a model.
tool_calls       The tools of a turn, and the calls of them.
turn             The turn itself, and its preparation.
typed_commands   The slash commands of a conversation.
"""
