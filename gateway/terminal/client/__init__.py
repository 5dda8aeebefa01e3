"""The client side of the websocket protocol.

client         A client that reconnects and resends (`docs/websocket.md`)
connection     One websocket connection, uploads and downloads of files, and their errors
dedup          The position in each session
local_gateway  The address and token of the local gateway, and requests to it
signals        Notifications from the client to its user
"""
