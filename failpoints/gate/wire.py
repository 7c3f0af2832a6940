"""One end of a connection: what has arrived and was not taken yet, and whether more can be written.

Both wires of a relay wake the same task, so that it can wait for whichever end moves first. What is buffered is bounded
both ways: reading pauses while too much has arrived, and a writer waits while the other side does not take it.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final, cast

from failpoints.gate.heads import Body, Malformed

RECEIVED_BYTES_MAX: Final = (1 << 20) + (1 << 18)
PIECE_BYTES: Final = 1 << 18
_WRITTEN_BYTES_HIGH: Final = 1 << 19
_WRITTEN_BYTES_LOW: Final = 1 << 17


class Wire(asyncio.Protocol):
    """The bytes of one connection."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._made: Callable[[], None] | None = None
        self._paused = False
        self._transport: asyncio.Transport | None = None
        self.received = bytearray()
        self.ended = False
        self.lost = False
        self.writable = True

    # -- called by the event loop ------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # asyncio has set TCP_NODELAY already.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_WRITTEN_BYTES_HIGH, low=_WRITTEN_BYTES_LOW)
        if self._made is not None:
            self._made()

    def data_received(self, data: bytes) -> None:
        self.received += data
        if len(self.received) > RECEIVED_BYTES_MAX and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> bool:
        self.ended = True
        self._wake()
        return True  # The relay closes, when it is done.

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended = self.lost = self.writable = True
        self._wake()

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True
        self._wake()

    # -- called by the relay and the gate ----------------------------------------------------------------------------

    def on_made(self, made: Callable[[], None]) -> None:
        """Call this when there is a connection."""
        self._made = made

    def take(self, count: int) -> bytes:
        """The next bytes, which have arrived."""
        with memoryview(self.received) as view:
            data = bytes(view[:count])
        del self.received[:count]
        if self._paused and len(self.received) <= RECEIVED_BYTES_MAX // 2 and self._transport is not None:
            self._paused = False
            if not self._transport.is_closing():
                self._transport.resume_reading()
        return data

    def take_body(self, body: Body, limit: int = PIECE_BYTES) -> bytes:
        """The next bytes that belong to a body, at most `limit`."""
        return self.take(body.take(self.received, limit))

    def take_answer(self, body: Body, limit: int = PIECE_BYTES) -> bytes:
        """The same of an answer. One that cannot be read on ends there, as if the store had hung up in its middle."""
        try:
            return self.take_body(body, limit)
        except Malformed:
            self.ended = True
            self.received.clear()
            self.abort()
            return b""

    def write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def is_reset(self) -> bool:
        """Whether something that was sent came back. After its end a connection is not read, and nobody says so."""
        if self._transport is not None and not self.lost:
            end = self._transport.get_extra_info("socket")
            self.lost = end.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0
        return self.lost

    def close(self) -> None:
        """Send what was written, and hang up."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Hang up at once."""
        if self._transport is not None:
            self._transport.abort()


def has_final_answer(store: Wire) -> bool:
    """Whether the store has begun to answer. That it wants the body is no answer, and ends here."""
    while (end := store.received.find(b"\r\n\r\n")) >= 0:
        if not store.received.startswith((b"HTTP/1.1 1", b"HTTP/1.0 1")):
            return True
        store.take(end + 4)
    return False
