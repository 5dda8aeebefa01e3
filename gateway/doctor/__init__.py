"""`exuvia doctor`: what is wrong with an installation, each with the sentence that mends it.

examination, findings               all checks in order; what one says
running_gateway, self_examination   the gateway that runs, asked about itself; its endpoint, which answers
home_checks, machine_checks         the home and its journals; Python, clock, disk, systemd
model_checks, network_checks        providers, keys and models; the port and the address
memory_checks                       who makes the memory's vectors
"""
