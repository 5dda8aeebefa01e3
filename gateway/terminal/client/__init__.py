"""The client side of the websocket protocol.

client           A lasting client of the websocket protocol (`docs/websocket.md`), for `exuvia chat` and for tests.
connection       A client's connection
dedup            How far a client has read a key's sessions
discovery        Where a client on this machine finds its gateway
gateway_request  One HTTP request to a gateway, from a command of this machine.
pending_replies  What a client sent and what became of it, folded from the session's events.
signals          What a client tells the program that uses it
uploading        A file on its way to the gateway, to go along with a message (`docs/attachments.md`).
"""
