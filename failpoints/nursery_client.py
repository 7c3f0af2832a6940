"""The command that a harness starts in place of a driver: it hands its pipes to the nursery, and ends as that ends.

It runs without the site packages and imports next to nothing: its start is the time that the nursery saves.
"""

import json
import os
import socket
import sys

LENGTH_BYTES = 8


def main() -> None:
    order = {
        "arguments": sys.argv[2:],
        "environment": dict(os.environ),
        "directory": os.getcwd(),
        "group": os.getpgrp(),
    }
    message = json.dumps(order).encode()
    with socket.socket(socket.AF_UNIX) as nursery:
        nursery.connect(sys.argv[1])
        socket.send_fds(nursery, [len(message).to_bytes(LENGTH_BYTES)], [0, 1, 2])
        nursery.sendall(message)
        for pipe in (0, 1, 2):
            os.close(pipe)  # They are the driver's now; a pipe that is still open here would seem to be in use.
        answer = nursery.recv(LENGTH_BYTES, socket.MSG_WAITALL)
    if len(answer) < LENGTH_BYTES:
        os._exit(70)  # The nursery is gone.
    code = os.waitstatus_to_exitcode(int.from_bytes(answer))
    if code < 0:
        os.kill(os.getpid(), -code)
    os._exit(code)


main()
