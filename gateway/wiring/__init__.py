"""The composition of one gateway, and its process.

app                Builds a gateway from the bottom up: storage, plugins, models, memory, facts, conversations.
console_endpoints  The console's endpoints and their paths.
daemon             One gateway process from start to stop.
factory            Builds conversations.
open_stores        The stores of a home, opened for writing.
openai_endpoints   The OpenAI-compatible endpoint and its path.
self_examination   `exuvia doctor` inside the running gateway.
systemd            The protocol with a service manager: sd_notify, the watchdog, socket activation.
"""
