"""The command that the conformance suite runs for each scenario: has a process that is ready run its client.

`python -S -E conformance_command.py SOCKET URL`. It imports next to nothing: the client's imports take a second of processor
time, which `conformance_client` spends once.
"""

import json
import os
import socket
import sys

if __name__ == "__main__":
    _, place, url = sys.argv
    told = {name: value for name, value in os.environ.items() if name.startswith("MCP_CONFORMANCE_")}
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as clients:
        clients.connect(place)
        socket.send_fds(clients, [json.dumps({"url": url, "environment": told}).encode()], [1, 2])
        sys.exit(int(clients.recv(16) or b"1"))
