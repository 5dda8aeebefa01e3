"""The gateway as a server of the Model Context Protocol: other agents search this memory, read sessions and send messages.

gateway_tools     The tools that are offered, by what a token allows.
mcp_server        `POST /mcp`: the official SDK's server behind the gateway's own access checks and limits.
program_messages  Messages of programs, delivered by the gateway that has the conversation.
"""
