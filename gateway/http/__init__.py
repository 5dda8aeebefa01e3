"""The HTTP and websocket server.

console/        The web console.
handshake       The greeting
http_protocol   HTTP as aiohttp speaks it, with errors in the gateway's form
listener        Where the gateway listens, how many connections it takes there, and whom it lets in, by the
                configuration.
openai/         The OpenAI-compatible API.
outbox          The outbox
request_bodies  The bodies of HTTP requests
responses       HTTP answers in the gateway's form
subscribers     Subscriptions
uploads         Uploads
web             The HTTP side
websocket       The websocket
"""
