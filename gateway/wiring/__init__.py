"""The composition of one gateway, and its process.

agent_conversations  What the conversations of each agent depend on.
app                  Builds a gateway from the bottom up: storage, plugins, models, agents, conversations.
daemon               One gateway process from start to stop.
endpoints            The endpoints for authenticated requests: the console's and the OpenAI-compatible one.
factory              Builds conversations.
listener             The listening sockets and their limits.
offline_erasure      Erasures in a home on which no gateway runs.
open_agents          The memory, facts, skills, tools and commands of each agent.
open_models          The open providers, and what chooses and asks models.
open_stores          The stores of a home, opened for writing.
running_plugins      Channels, MCP servers, web tools, and the reloading of plugins.
retention         Applies the rules about how long conversations are kept.
self_examination     `exuvia doctor` inside the running gateway.
systemd              The protocol with a service manager: sd_notify, the watchdog, socket activation.
"""
