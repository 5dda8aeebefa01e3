"""Several gateways on one database: relaying to the gateway that has a conversation.

links          Connections to the other gateways
cluster_endpoints  What `/cluster` serves
delivery_handover  Answers for a channel that another gateway has open
key_relay      The conversations of one client that other gateways have, over the websocket
request_relay  Requests about conversations that other gateways have
update_relay  Updates of a person's list of conversations, from the other gateways
"""
