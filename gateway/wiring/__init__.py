"""The composition of one gateway, and its process.

app                What one gateway consists of, put together from the bottom up
console_endpoints  All that the console asks for, each under its path.
daemon             The daemon
factory            Conversations
openai_endpoints   Where the OpenAI endpoint is reached.
self_examination   The doctor inside the gateway that runs
systemd            What a service manager and the gateway say to each other
"""
