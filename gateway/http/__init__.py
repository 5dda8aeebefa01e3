"""The HTTP and websocket server.

console/        The web console.
handshake       Authentication of a websocket by its first frame.
http_protocol   aiohttp's HTTP protocol, with errors in the gateway's format.
listener        The listening sockets, their limits, and the access rules.
openai/         The OpenAI-compatible API.
outbox          Frames that wait to be sent to one client.
request_bodies  Reading request bodies within limits.
responses       JSON responses and errors in the gateway's format.
subscribers     Subscriptions of clients to sessions.
uploads         Uploads and downloads of attachments.
web             The aiohttp application: access checks, health, routes.
websocket       The websocket server.
"""
