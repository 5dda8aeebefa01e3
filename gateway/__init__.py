"""The gateway: from the websocket to the journal and back.

auth/            Authentication: people, tokens, cookies, and which hosts and origins are admitted.
backup/          Backups of a home, and restoring them.
cli/             The command line.
config/          The configuration: its keys, sources, validation and reloading.
conversations/   Conversations: open sessions and their turns.
doctor/          The checks of `exuvia doctor`.
http/            The HTTP and websocket server.
metrics/         Counters and measurements of the running process.
models/          Model selection: open providers, fallback, and requests beside the conversation.
plugin_runtime/  Plugins at run time: their services, life cycle and watchdog.
protocol/        The websocket protocol: frames, and which messages are commands.
status/          The status of the whole gateway.
support/         What every package of `gateway` may use.
terminal/        `exuvia chat`: a terminal client of the websocket protocol.
wiring/          The composition of one gateway, and its process.
"""

VERSION = "0.1.0"
"""The version of Exuvia."""
