"""The websocket protocol: its frames, and slash commands.

client_frames   The gateway's frames as a client decodes them.
frames          Client frames, validated, and gateway frames, encoded.
slash_commands  The recognition and parsing of slash commands.
"""
