"""The upper floor: the daemon, from the socket to the log.

cli, client, chat_terminal   the command line and the terminal client
daemon                       the only place where things are put together; start, serve, stop in order
config, home, token, logs    what it is given, where it lives, how it speaks to operators
web, access, readiness       HTTP: who is let in; health
uploads, answers             HTTP: files on their way in and out; answers in one form
websocket, frames            one client: what it may say, what is answered
outbox, subscribers          everything that goes to one client, at its own pace: cursors, not queues
switchboard, chat            which conversation a message belongs to; one key of one person
conversation                 the two coroutines that own one session
turn                         one turn, in a straight line
files, showing               a conversation's files on their way to models: what is shown, read once
live                         the answer that is being streamed
models                       which model answers
commands, view, status       which text is a command; what it sees and shows
"""
