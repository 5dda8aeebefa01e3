"""The websocket protocol: frames, and which messages are commands.

client_frames   What the gateway says, as a client reads it
frames          The frames of the websocket
slash_commands  Commands
"""
