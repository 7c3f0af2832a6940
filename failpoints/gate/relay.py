"""One client connection and the store connection that belongs to it: requests go one way, answers the other.

Bytes are passed on as they came, so that signatures stay valid. A body of up to 1 MiB is read whole before anything of
the request is sent on: a client that dies while it sends leaves nothing at the store. Whatever has been received whole
is sent on even if its client has died since, as a network would. An exchange is over in the ledger before the client
has the end of its answer, so who has the answer finds the record complete.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from failpoints.gate.heads import (
    HEAD_BYTES_MAX,
    AnswerHead,
    Body,
    Framing,
    Malformed,
    RequestHead,
    answer_head,
    made_answer,
    request_head,
)
from failpoints.gate.ledger import Armed, Ledger, Record
from failpoints.gate.wire import PIECE_BYTES, Wire, has_final_answer

WHOLE_BODY_BYTES_MAX: Final = 1 << 20
_PIECES_PER_SECOND: Final = 20
_RESET_SECONDS: Final = 0.02
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"

Connect = Callable[[Callable[[], None]], Coroutine[Any, Any, Wire]]


class StoreGone(Exception):
    """The store cannot be reached, or hung up before it had answered."""


class ClientGone(Exception):
    """The client hung up before the request was whole, or its port was closed."""


class Relay:
    """Serves one client connection."""

    def __init__(self, owner: str, ledger: Ledger, connect: Connect) -> None:
        self.owner = owner
        self.closing = False
        self.client = Wire(self.wake)
        self._ledger = ledger
        self._connect_store = connect
        self._store: Wire | None = None
        self._waiter: asyncio.Future[None] | None = None

    def wake(self) -> None:
        """Something has changed: look again."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def shut(self) -> None:
        """End it: nothing that was not sent on yet ever is, and what is at the store is waited for."""
        self.closing = True
        self.client.abort()
        self.wake()

    async def run(self) -> None:
        """Serve requests until one of both sides hangs up."""
        try:
            while await self._serve_one():
                pass
        finally:
            self.client.close()
            self._leave_store()

    async def _changed(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    async def _serve_one(self) -> bool:
        """One request and its answer. Whether another one can follow on this connection."""
        raw = await self._head_from(self.client)
        if raw is None:
            return False
        try:
            head = request_head(raw)
        except Malformed as error:
            self.client.write(made_answer(400, "", str(error), closes=True))
            return False
        record = self._ledger.begin(self.owner, head)
        try:
            return await self._exchange(head, record)
        except Malformed as error:
            self._ledger.finish(record, "refused", 400)
            self.client.write(made_answer(400, head.method, str(error), closes=True))
            return False
        except ClientGone:
            self._ledger.finish(record, "client_gone")
            return False
        finally:
            self._ledger.finish(record, "client_gone")

    async def _exchange(self, head: RequestHead, record: Record) -> bool:
        body = Body(head.framing, keep=record.is_bulk_delete)
        start = await self._start_of_body(head, body)
        record.bytes_in = body.payload
        if body.kept is not None:
            if body.done:
                self._ledger.learn_keys(record, b"".join(body.kept))
            body.kept = None
        armed = self._ledger.act(record)
        rule = None if armed is None else armed.rule
        if armed is not None:
            over = await self._act_before(armed, head, body, record)
            if over is not None:
                return over
        if self.closing:
            raise ClientGone
        pace = rule.bytes_per_second if rule is not None and rule.action == "throttle" else 0
        ignoring = rule is not None and rule.action == "ignore_conditions"
        try:
            raw = head.without_conditions() if ignoring else head.raw
            answer = await self._ask(head, raw, start, body, record, pace)
        except StoreGone as reason:
            return await self._say_gone(head, body, record, str(reason))
        record.status = answer.status
        if armed is not None and await self._act_after(armed, answer, record):
            return False
        again = await self._pass_on(answer, record, pace)
        if not body.done:
            # To hang up on a client that is still sending would take the answer from it.
            await self._swallow(body, record)
            return False
        return again and not head.closes

    # -- the request -------------------------------------------------------------------------------------------------

    async def _head_from(self, wire: Wire) -> bytes | None:
        """Everything up to and with the empty line, or None when the connection ends before it."""
        searched = 0
        while True:
            end = wire.received.find(b"\r\n\r\n", searched)
            if end >= 0:
                return wire.take(end + 4)
            searched = max(0, len(wire.received) - 3)
            if wire.ended or (self.closing and wire is self.client) or searched > HEAD_BYTES_MAX:
                return None
            await self._changed()

    async def _start_of_body(self, head: RequestHead, body: Body) -> bytes:
        """The whole body if it is small; nothing of one that is known to be large."""
        if head.expects_continue and not body.done and not self.client.received:
            self.client.write(_CONTINUE)
        if not head.framing.chunked and (head.framing.length or 0) > WHOLE_BODY_BYTES_MAX:
            return b""
        start = bytearray()
        while not body.done and len(start) <= WHOLE_BODY_BYTES_MAX:
            start += await self._piece_from_client(body, PIECE_BYTES)
        return bytes(start)

    async def _piece_from_client(self, body: Body, limit: int) -> bytes:
        while not self.client.received:
            if self.client.ended or self.closing:
                raise ClientGone
            await self._changed()
        return self.client.take_body(body, limit)

    async def _ask(
        self, head: RequestHead, raw: bytes, start: bytes, body: Body, record: Record, pace: int
    ) -> AnswerHead:
        """Send a request on, and wait for the store to answer."""
        used_before = self._store is not None
        try:
            await self._send(raw, start, body, record, pace)
            return await self._answer_head(head)
        except StoreGone:
            # A store may hang up on a quiet connection just when a request is on its way. To read twice does no harm.
            if not used_before or head.method not in ("GET", "HEAD"):
                raise
            self._leave_store()
            await self._send(raw, start, body, record, pace)
            return await self._answer_head(head)

    async def _send(self, raw: bytes, start: bytes, body: Body, record: Record, pace: int) -> None:
        """Send a request on; return early when the store answers before it has all of it."""
        store = await self._store_connection()
        if not pace:
            store.write(raw + start)
        else:
            store.write(raw)
            piece_bytes = max(1, pace // _PIECES_PER_SECOND)
            for place in range(0, len(start), piece_bytes):
                piece = start[place : place + piece_bytes]
                await self._pause(len(piece) / pace)
                store.write(piece)
        limit = max(1, pace // _PIECES_PER_SECOND) if pace else PIECE_BYTES
        while not body.done and not has_final_answer(store) and not store.ended:
            if not self.client.received:
                if self.client.ended or self.closing:
                    raise ClientGone
                await self._changed()
                continue
            piece = self.client.take_body(body, limit)
            record.bytes_in = body.payload
            if pace:
                await self._pause(len(piece) / pace)
            store.write(piece)
            while not store.writable and not store.lost and not has_final_answer(store):
                await self._changed()

    async def _store_connection(self) -> Wire:
        if self._store is None or self._store.ended or self._store.received:
            self._leave_store()
            try:
                self._store = await self._connect_store(self.wake)
            except OSError as error:
                raise StoreGone(f"the store cannot be reached: {error.strerror or type(error).__name__}") from None
        return self._store

    def _leave_store(self) -> None:
        """Hang up on the store. If it waits for the rest of a body it learns that there is none."""
        if self._store is not None:
            self._store.abort()
            self._store = None

    # -- the answer --------------------------------------------------------------------------------------------------

    async def _answer_head(self, head: RequestHead) -> AnswerHead:
        """The head of the answer. Interim answers end here: the gate has told the client to go on itself."""
        assert self._store is not None
        while True:
            raw = await self._head_from(self._store)
            if raw is None:
                raise StoreGone("the store hung up before it had answered")
            try:
                answer = answer_head(raw, head.method)
            except Malformed as error:
                raise StoreGone(f"the store's answer cannot be read: {error}") from None
            if answer.status >= 200:
                return answer

    async def _pass_on(self, answer: AnswerHead, record: Record, pace: int) -> bool:
        """Stream an answer to the client. Whether both connections can be used again."""
        assert self._store is not None
        store, client = self._store, self.client
        body = Body(answer.framing, keep=record.verb == "LIST")
        limit = max(1, pace // _PIECES_PER_SECOND) if pace else PIECE_BYTES
        pending = answer.raw
        while True:
            piece = b""
            if not body.done and store.received:
                piece = store.take_answer(body, limit)
                if pace:
                    await self._pause(len(piece) / pace)
                record.bytes_out = body.payload
                pending = pending + piece if pending else piece
            if client.lost or self.closing:
                return await self._finish_without_client(answer, body, record)
            if body.done or (store.ended and not store.received):
                break
            if piece:
                client.write(pending)
                pending = b""
                while not client.writable and not client.lost:
                    await self._changed()
            else:
                await self._changed()
        if body.kept is not None:
            page = b"".join(body.kept)
            # A folder takes as much room on a page as a key does.
            record.listed = page.count(b"<Key>") + page.count(b"<CommonPrefixes>")
        if client.ended:
            beginning = pending[:-1] or pending
            if await self._is_dead(beginning):
                return await self._finish_without_client(answer, body, record)
            pending = pending[len(beginning) :]
        complete = body.done or answer.framing == Framing(None)
        self._ledger.finish(record, "answered" if complete else "store_gone", answer.status)
        client.write(pending)
        return body.done and not answer.closes

    async def _is_dead(self, beginning: bytes) -> bool:
        """Whether a client that has ended its side listens no more: what is sent to a dead one comes back at once."""
        self.client.write(beginning)
        await self._pause(_RESET_SECONDS)
        return self.client.is_reset()

    async def _finish_without_client(self, answer: AnswerHead, body: Body, record: Record) -> bool:
        """Nobody hears it any more. A write is waited for, so that it is not at the store after its record is over."""
        if record.durable:
            await self._read_away(answer, body)
        self._ledger.finish(record, "client_gone")
        return False

    async def _read_away(self, answer: AnswerHead, body: Body | None = None) -> None:
        """Read an answer to its end, for nobody."""
        assert self._store is not None
        body = Body(answer.framing) if body is None else body
        while not body.done:
            if self._store.received:
                self._store.take_answer(body)
            elif self._store.ended:
                return
            else:
                await self._changed()

    # -- what rules ask for ------------------------------------------------------------------------------------------

    async def _act_before(self, armed: Armed, head: RequestHead, body: Body, record: Record) -> bool | None:
        """What a rule does before anything is sent on. None when it is to be sent on now; else as `_exchange`."""
        rule = armed.rule
        match rule.action:
            case "hold" if rule.when == "before" and await self._hold(armed, record) == "drop":
                self._ledger.finish(record, "refused")
                return False
            case "refuse":
                self._ledger.finish(record, "refused", armed=armed)
                return False
            case "answer":
                return await self._inject(armed, head, body, record)
            case "delay" | "throttle" | "ignore_conditions":
                self._ledger.acted(armed, record)
                if rule.action == "delay":
                    await self._pause(rule.seconds)
        return None

    async def _act_after(self, armed: Armed, answer: AnswerHead, record: Record) -> bool:
        """What a rule does when the store has answered. Whether that is the end of it."""
        rule = armed.rule
        if rule.action == "cut":
            await self._read_away(answer)
            self._ledger.finish(record, "cut", armed=armed)
            return True
        if rule.action == "hold" and rule.when == "after" and await self._hold(armed, record) == "drop":
            self._ledger.finish(record, "cut")
            return True
        return False

    async def _hold(self, armed: Armed, record: Record) -> str:
        """Stand still until somebody decides: go or drop. A port that closes drops."""
        self._ledger.hold(armed, record, self.wake)
        while armed.verdict is None and not self.closing:
            await self._changed()
        self._ledger.unhold(armed, record)
        return "drop" if self.closing or armed.verdict is None else armed.verdict

    async def _inject(self, armed: Armed, head: RequestHead, body: Body, record: Record) -> bool:
        """Answer in place of the store."""
        await self._swallow(body, record)
        status = armed.rule.status
        self._ledger.finish(record, "injected", status, armed)
        self.client.write(made_answer(status, head.method, "an answer of the gate", closes=head.closes))
        return not head.closes

    async def _say_gone(self, head: RequestHead, body: Body, record: Record, why: str) -> bool:
        self._leave_store()
        if self.client.lost or self.closing:
            self._ledger.finish(record, "store_gone")
            return False
        try:
            await self._swallow(body, record)
        except ClientGone:
            self._ledger.finish(record, "store_gone")
            return False
        self._ledger.finish(record, "store_gone", 502)
        self.client.write(made_answer(502, head.method, why, closes=True))
        return False

    async def _swallow(self, body: Body, record: Record) -> None:
        """Read the rest of a body for nobody: a client that is still sending would not read its answer."""
        while not body.done:
            await self._piece_from_client(body, PIECE_BYTES)
            record.bytes_in = body.payload

    async def _pause(self, seconds: float) -> None:
        """Let time pass. A port that closes ends it."""
        over = False

        def end() -> None:
            nonlocal over
            over = True
            self.wake()

        timer = asyncio.get_running_loop().call_later(seconds, end)
        try:
            while not over and not self.closing:
                await self._changed()
        finally:
            timer.cancel()
