"""The door: who comes in, and everything that goes to and from a client.

web, answers         HTTP: which requests are let in; answers in one form
protocol             aiohttp's connection, with errors in the gateway's form
access, attempts     tokens, hosts and origins; how long an address waits after wrong tokens
token, people        the gateway's own token; who there is, and which token names whom
listening            where it is, how many connections it takes, and whom it lets in there
descriptors          how many connections there may be; unauthenticated: those over which nobody was let in yet
passes, callers      what a browser shows instead of a token: cookies and one-time links; who sends a request
signed_out           which cookies were ended by their owners, kept in a file
greeting, websocket  how a connection says who is there; what its frames do
frames, refused      what may be said on either side; why a frame was not done
uploads, bodies      HTTP: files on their way in and out; the bodies of other requests
outbox, subscribers  everything that goes to one client, at its own pace: cursors, not queues
history              pages of earlier events
"""
