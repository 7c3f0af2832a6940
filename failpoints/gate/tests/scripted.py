"""A store that does what a test says: a function is called with each connection, in a thread of its own."""

from __future__ import annotations

import contextlib
import io
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

WAIT_SECONDS: Final = 30.0
OK: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"

Script = Callable[[socket.socket, io.BufferedReader], None]


@contextmanager
def scripted_store(script: Script) -> Iterator[str]:
    """The endpoint of a store that follows the script on each connection."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
    connections: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def serve(connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream, contextlib.suppress(ConnectionError):
            script(connection, stream)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listening.accept()
                connections.append(connection)
                threads.append(threading.Thread(target=serve, args=(connection,)))
                threads[-1].start()

    accepting = threading.Thread(target=accept)
    accepting.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        with contextlib.suppress(OSError):
            listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        accepting.join(WAIT_SECONDS)
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join(WAIT_SECONDS)


def read_head(stream: io.BufferedReader) -> bytes:
    """A head with its empty line; nothing when the connection has ended."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        line = stream.readline()
        if not line:
            return b""
        head += line
    return head


def length_of(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0


def always(answer: bytes) -> Script:
    """Read requests of known length and give all of them the same answer."""

    def script(connection: socket.socket, stream: io.BufferedReader) -> None:
        while head := read_head(stream):
            stream.read(length_of(head))
            connection.sendall(answer)

    return script


@contextmanager
def connected(endpoint: str) -> Iterator[tuple[socket.socket, io.BufferedReader]]:
    """A bare client connection."""
    host, number = endpoint.removeprefix("http://").split(":")
    with (
        socket.create_connection((host, int(number)), timeout=WAIT_SECONDS) as connection,
        connection.makefile("rb") as stream,
    ):
        yield connection, stream


def answer_from(stream: io.BufferedReader) -> tuple[bytes, bytes]:
    """Head and body of one answer with a length."""
    head = read_head(stream)
    return head, stream.read(length_of(head))
