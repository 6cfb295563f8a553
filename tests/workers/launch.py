"""Asks the fork server for a process with the arguments, files, environment and folder of this one.

Runs without site-packages, so that it starts in milliseconds.
"""

import json
import os
import socket
import struct
import sys

SIZE = struct.Struct("!I")
FILES = 3


def main() -> None:
    """Send the request, and wait until the process has ended."""
    address, *arguments = sys.argv[1:]
    request = {"arguments": arguments, "environment": dict(os.environ), "directory": os.getcwd()}
    encoded = json.dumps(request).encode()
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(address)
        socket.send_fds(server, [SIZE.pack(len(encoded))], range(FILES))
        server.sendall(encoded)
        server.recv(1)


if __name__ == "__main__":
    main()
