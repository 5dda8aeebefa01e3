"""The terminal client: `exuvia chat`, and the client of our own protocol that it is built on.

chat         a person or a pipe, and the sessions that they talk to
talk         one session that is talked to: what is typed, shown, attached, interrupted
client       one conversation over connections that come and go: nothing lost, nothing twice
signals      what it tells: how the connection is, and what comes over it
connection   one websocket
frames       what the gateway says, read
seen         how far the conversation was followed
outstanding  what was said and is not answered yet
uploading    a file on its way to go along with a message
screen       what of it all a terminal or a pipe is shown
activity     what runs, in a few words
paper        where it is written: any stream of characters, or a desk
desk         a terminal at which a person reads and writes at the same time
keys         what the keys do there
completion   what can be completed
own_commands what this program does itself
history      what was typed in earlier runs
answer       an answer that is being written: what stands for good, and how the rest looks now
blocks       where unfinished Markdown can be cut
dialect      which Markdown is rendered, and what stays as it was written
rendering    Markdown as lines of a terminal
keyboard     lines where there is no desk: pipes, and terminals without styles
printable    text that a terminal may be given
front_door   where the gateway of this machine is
gateway_request   one HTTP request to it
"""
