"""The conversation with one engine: numbered requests, checked both ways against the protocol.

Every kind of adapter is this one conversation over its own transport, so that no kind is judged more gently than
another. After a fault the conversation is over: the driver is ended, and every further call raises the same fault. Who
wants to go on connects anew.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any, NoReturn, Self

from conformance import protocol
from conformance.adapters.base import (
    AdapterFault,
    EngineError,
    FaultReason,
    NotInProtocol,
    Transport,
    TransportFailure,
    Unsupported,
    shortened,
)
from conformance.adapters.credentials import Scrubber

# Characters that a line reader of some language takes for the end of a line; they travel escaped.
LINE_ENDS = ("\u0085", "\u2028", "\u2029")
STDOUT_HINT = "only answers belong on stdout: send logs and what libraries print to stderr"


class Conversation:
    """An adapter: requests go out over a transport, and each comes back as `ok` or as an exception."""

    def __init__(self, spec: str, command: str | None, transport: Transport, scrubber: Scrubber) -> None:
        self.spec = spec
        self.command = command
        self.transport = transport
        self._scrubber = scrubber
        self._seq = 0
        self._fault: AdapterFault | None = None
        self._turn = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def call(self, op: str, args: Mapping[str, Any]) -> Any:
        """Ask for one operation of the protocol and return what `ok` holds."""
        try:
            protocol.check_request({"seq": self._seq + 1, "op": op, "args": dict(args)})
        except protocol.ProtocolViolation as error:
            raise NotInProtocol(f"the harness asks {op} outside the protocol: {error}") from None
        return self.ask(op, args)

    def ask(self, op: str, args: Mapping[str, Any]) -> Any:
        """The same without a look at the request: for what a driver has to refuse, such as an unknown operation."""
        with self._turn:
            if self._fault is not None:
                raise self._fault
            self._seq += 1
            request = {"seq": self._seq, "op": op, "args": dict(args)}
            answer = self._answer(request, _line(request))
        if "unsupported" in answer:
            raise Unsupported(op, self._scrubber.text(answer["unsupported"]))
        if "error" in answer:
            error = self._scrubber.value(answer["error"])
            raise EngineError(error["kind"], error["code"], error["message"], error["details"], error.get("hint"))
        return answer["ok"]

    def close(self) -> None:
        """End the driver. A call that waits in another thread ends with it."""
        self.transport.close()
        with self._turn:
            if self._fault is None:
                self._fault = AdapterFault(f"the adapter of '{self.spec}' is closed", reason="closed")

    def _answer(self, request: dict[str, Any], line: bytes) -> dict[str, Any]:
        try:
            answered = self.transport.exchange(line)
        except TransportFailure as failure:
            self._break(failure.reason, failure.message, request)
        except BaseException:
            # Interrupted while an answer is under way: the next one to arrive would be taken for another's.
            self._end(AdapterFault("the last request was interrupted", request=self._shown(request), reason="closed"))
            raise
        where = f"the answer to request {request['seq']} ({request['op']})"
        answer = self._parsed(answered, where, request)
        if "ok" in answer and request["op"] not in protocol.operations():
            self._break("not_an_answer", f"{where} says that it is done, and there is no such operation", request)
        try:
            protocol.check_answer(request, answer)
        except protocol.ProtocolViolation as error:
            misfit = shortened(self._scrubber.text(str(error)), 600)
            self._break(*_misfit(misfit, answer, where, request["seq"]), request)
        return answer

    def _parsed(self, line: bytes, where: str, request: dict[str, Any]) -> dict[str, Any]:
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            self._break("not_utf8", f"{where} is not UTF-8: {error.reason} at byte {error.start}", request)
        try:
            answer = json.loads(text, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            said = f"it says {shortened(self._scrubber.text(text), 120)!r}" if text.strip() else "it is an empty line"
            self._break("not_json", f"{where} is not JSON: {error}; {said}; {STDOUT_HINT}", request)
        if "\\ud" in text.lower() and not _has_bytes(answer):
            self._break("not_utf8", f"{where} escapes one half of a surrogate pair, which is no character", request)
        if not isinstance(answer, dict):
            kind = type(answer).__name__
            self._break("not_an_answer", f"{where} is JSON but not an object: a {kind}; {STDOUT_HINT}", request)
        return answer

    def _break(self, reason: FaultReason, message: str, request: Mapping[str, Any]) -> NoReturn:
        self.transport.close(at_once=True)
        stderr = self._scrubber.text(self.transport.stderr())
        fault = AdapterFault(self._scrubber.text(message), stderr, self._shown(request), reason)
        self._end(fault)
        raise fault

    def _end(self, fault: AdapterFault) -> None:
        self.transport.close(at_once=True)
        self._fault = fault

    def _shown(self, request: Mapping[str, Any]) -> dict[str, Any]:
        shown: dict[str, Any] = self._scrubber.value(request)
        return shown


def _misfit(misfit: str, answer: dict[str, Any], where: str, seq: int) -> tuple[FaultReason, str]:
    said = answer.get("seq")
    if {"ok", "error", "unsupported"} & answer.keys() and (said is None or isinstance(said, int)) and said != seq:
        meaning = "it could read no seq in the request" if said is None else "answers come in the order of the requests"
        return "wrong_seq", f"{where} says seq {json.dumps(said)} where {seq} was asked: {meaning}"
    return "not_an_answer", f"{where} is not in the protocol: {misfit}"


def _line(request: dict[str, Any]) -> bytes:
    try:
        text = json.dumps(request, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise NotInProtocol(f"the harness asks {request['op']} with what is not JSON: {error}") from None
    for character in LINE_ENDS:
        text = text.replace(character, f"\\u{ord(character):04x}")
    try:
        return text.encode("utf-8") + b"\n"
    except UnicodeEncodeError:
        # Half a surrogate pair has no bytes of its own; escaped, it gets to the engine that has to refuse it.
        return json.dumps(request, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"


def _has_bytes(answer: Any) -> bool:
    try:
        json.dumps(answer, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
