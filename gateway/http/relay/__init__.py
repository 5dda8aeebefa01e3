"""Several gateways on one database: relaying to the gateway that has a conversation.

links          Connections to the other gateways
key_relay      The conversations of one client that other gateways have, over the websocket
"""
