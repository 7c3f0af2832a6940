"""What can go wrong at the gate. None of these ever holds a header, a query or a credential."""

from __future__ import annotations


class GateError(Exception):
    """The gate was asked for something that it cannot do."""


class GateBusy(GateError):
    """Something is in flight, and what was asked for needs quiet."""


class GateTimeout(GateError):
    """What was waited for did not happen in time; the message says what it was."""


class RuleError(GateError, ValueError):
    """A rule that makes no sense: which field of which rule, and why."""

    def __init__(self, where: str, field: str, why: str) -> None:
        super().__init__(f"{where}.{field}: {why}" if field else f"{where}: {why}")
        self.where = where
        self.field = field
        self.why = why
