"""The client side of the websocket protocol.

client         A client that reconnects and resends (`docs/websocket.md`)
connection     One websocket connection, file uploads, and their errors
local_gateway  The address and token of the local gateway, and requests to it
signals        Notifications from the client to its user
"""
