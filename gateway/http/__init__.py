"""The HTTP and websocket server.

concurrency           Limits for what is in use at the same time.
console/              The web console.
event_stream          Responses of server-sent events.
hooks                 Requests of services to channels.
mcp/                  The gateway as a server of the Model Context Protocol.
openai/               The OpenAI-compatible API.
outbox                Frames that wait to be sent to one client.
relay/                Relaying to the gateway of the same database that has a conversation.
request_bodies        Reading request bodies within limits.
responses             Responses and errors in the gateway's format.
subscribers           Subscriptions of clients to sessions.
uploads               Uploads and downloads of attachments.
web                   The aiohttp application: access checks, health, routes.
websocket             The websocket server: connections and their authentication.
websocket_connection  One client of the websocket: the handling of its frames.
"""
