"""What a person types after a slash. Each command is a class that knows nothing but the conversation it was typed in.

help, history       what can be typed; what was said
status, usage       how it is; what it cost in tokens
model, new          which model answers; a new session
compact             what was said before, summarised; with /compactions and /revert
context             what the next request would hold
remember             into the memory; with /memory, out of it
queue, verbose      what happens to messages that arrive meanwhile; how much is told
stop                end the running turn
facts               what is known in few words: /pin, /unpin, /forget, /clear, /why
markdown            text inside Markdown
"""
