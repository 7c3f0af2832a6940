"""What every adapter is to the harness, and the ways in which asking an engine can end.

A call goes through these steps, and each has its own way to fail:

    step                                              what can go wrong                     what is raised
    ------------------------------------------------  ------------------------------------  -------------------
    read the text that names the engine                it has no form that is known          InvalidEngineSpec
    start the driver, or import the class              it does not start                     AdapterFault
    hold the request against the protocol              the harness itself is wrong           NotInProtocol
    send it, wait, read one line                       silence, an exit, a line too long     AdapterFault
    hold the answer against the protocol               it is not the answer to this          AdapterFault
    look at the answer                                 the engine says no                    EngineError
                                                       the engine does not have it           Unsupported

An `EngineError` says something about the engine; an `AdapterFault` says only that nobody could hear it. Errors hold
fields and render themselves, and hold no credentials: they are scrubbed before they are made.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, Literal, Protocol

_REQUEST_SHOWN_CHARACTERS: Final = 300
_STDERR_SHOWN_LINES: Final = 12

FaultReason = Literal[
    "not_started",  # There is no such command, or it cannot be executed, or there is no such class.
    "exited_before_first_answer",
    "exited_mid_request",
    "exited_between_requests",
    "gave_up",  # It has ended with the status that says so: it cannot go on, for a reason of its own.
    "closed_stdout",
    "silent",
    "line_too_long",
    "not_utf8",
    "not_json",
    "not_an_answer",
    "wrong_seq",
    "spoke_unasked",
    "raised",  # Code of an adapter in this process raised what no adapter may raise.
    "closed",
]


class Adapter(Protocol):
    """One engine, ready to be asked."""

    @property
    def spec(self) -> str:
        """The text that names the engine, as a person wrote it."""

    @property
    def command(self) -> str | None:
        """The command line of the driver, if it is a process."""

    def call(self, op: str, args: Mapping[str, Any]) -> Any:
        """Ask for one operation and return what `ok` holds; otherwise EngineError, Unsupported or AdapterFault."""

    def close(self) -> None:
        """End the driver and whatever it started. A second time does nothing."""


class EngineError(Exception):
    """The engine's own typed answer: it did not do what it was asked."""

    def __init__(
        self, kind: str, code: str, message: str, details: Mapping[str, Any] | None = None, hint: str | None = None
    ) -> None:
        super().__init__(kind, code, message, details, hint)
        self.kind = kind
        self.code = code
        self.message = message
        self.details: dict[str, Any] = dict(details or {})
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.kind}/{self.code}: {self.message}" + (f" ({self.hint})" if self.hint else "")


class Unsupported(Exception):
    """The engine says that it does not have the operation."""

    def __init__(self, op: str, why: str) -> None:
        super().__init__(op, why)
        self.op = op
        self.why = why

    def __str__(self) -> str:
        return f"{self.op} is unsupported: {self.why}"


class AdapterFault(Exception):
    """The adapter broke, not the engine: what it did, what it was asked, and the last that it wrote to stderr."""

    def __init__(
        self,
        message: str,
        stderr: str = "",
        request: Mapping[str, Any] | None = None,
        reason: FaultReason = "not_started",
    ) -> None:
        super().__init__(message, stderr, request, reason)
        self.message = message
        self.stderr = stderr
        self.request = request
        self.reason = reason

    def __str__(self) -> str:
        parts = [self.message]
        if self.request is not None:
            parts.append(f"request: {shortened(json.dumps(self.request, ensure_ascii=False, default=str))}")
        if self.stderr.strip():
            parts.append("stderr, its last lines:")
            parts += [f"  {line}" for line in self.stderr.rstrip().split("\n")[-_STDERR_SHOWN_LINES:]]
        return "\n".join(parts)


class NotInProtocol(AssertionError):
    """The harness was about to ask something that no engine has to understand: a mistake of the harness."""


class InvalidEngineSpec(ValueError):
    """A text that names no engine."""

    FORMS: Final = (
        "cmd:<command line> for a driver process, python:<module>:<Class> for a class in this process, "
        "reference for the built-in engine, or mutant:<name> for a deliberately broken one"
    )

    def __init__(self, spec: str, problem: str) -> None:
        super().__init__(spec, problem)
        self.spec = spec
        self.problem = problem

    def __str__(self) -> str:
        return f"'{self.spec}' names no engine: {self.problem}; write {self.FORMS}"


class TransportFailure(Exception):
    """How a transport tells the conversation that it has broken; the conversation makes the AdapterFault of it."""

    def __init__(self, reason: FaultReason, message: str) -> None:
        super().__init__(reason, message)
        self.reason: FaultReason = reason
        self.message = message


class Transport(Protocol):
    """Carries one line to a driver and brings one line back."""

    def exchange(self, request: bytes) -> bytes:
        """The answer to one request, without its line feed; a TransportFailure if there is none."""

    def stderr(self) -> str:
        """The last that the driver wrote to stderr."""

    def close(self, *, at_once: bool = False) -> None:
        """End what is at the other side: politely, or at once because it has broken."""


def shortened(text: str, characters: int = _REQUEST_SHOWN_CHARACTERS) -> str:
    """The text on one line, cut where it gets too long to read."""
    line = " ".join(text.split())
    return line if len(line) <= characters else f"{line[:characters]}… ({len(line)} characters)"
