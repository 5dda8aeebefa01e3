"""Rooms of Matrix, spoken over its client-server API on the gateway's HTTP client. See
`docs/channels/matrix.md`.

encryption      End-to-end encryption (the extra `matrix-e2e`).
html            Markdown as HTML, and as plain text.
login           Logging in by token or password.
matrix_api      The client-server API.
matrix_channel  The channel.
reader          Events of a room as inbound messages.
rooms           Members and encryption of the rooms.
sync            Receiving, and the place up to which everything is durable.
timeline        The events of a sync response, without gaps.
"""
