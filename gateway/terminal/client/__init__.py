"""The client side of the websocket protocol.

client           A client that reconnects and resends (`docs/websocket.md`)
connection       One websocket connection, and its errors
dedup            The position in a key's sessions, to skip repeated events
discovery        The address and token of the local gateway
gateway_request  One HTTP request to a gateway
pending_replies  Messages of this client that have no answer yet
signals          Notifications from the client to its user
uploading        File uploads (`docs/attachments.md`)
"""
