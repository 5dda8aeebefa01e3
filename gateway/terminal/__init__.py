"""The terminal client: `exuvia chat`, and the client of our own protocol that it is built on.

chat         what a person or a pipe says, and what is shown
client       one conversation over connections that come and go: nothing lost, nothing twice
connection   one websocket
frames       what the gateway says, read
seen         how far the conversation was followed
outstanding  what was said and is not answered yet
screen       what is written to a terminal or a pipe
keyboard     what is typed
printable    text that a terminal may be given
front_door   where the gateway of this machine is
"""
