"""The composition of one gateway, and its process.

app               Builds a gateway from the bottom up: storage, plugins, models, memory, facts, conversations.
daemon            One gateway process from start to stop.
endpoints         The endpoints for authenticated requests: the console's and the OpenAI-compatible one.
factory           Builds conversations.
listener          The listening sockets and their limits.
offline_erasure   Erasures in a home on which no gateway runs.
open_stores       The stores of a home, opened for writing.
self_examination  `exuvia doctor` inside the running gateway.
systemd           The protocol with a service manager: sd_notify, the watchdog, socket activation.
"""
