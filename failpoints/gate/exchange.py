"""One request and its answer, as a value: what was asked for, what the store said, and what the client heard."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Final

from failpoints.gate.roles import DURABLE_VERBS

# How an object comes to be there whole, at once: by a put, by a copy, or by the end of an upload in parts.
WRITE_VERBS: Final = ("PUT", "COPY", "COMPLETE_UPLOAD")
OUTCOMES: Final = ("answered", "refused", "cut", "injected", "client_gone", "store_gone", "in_flight", "held")


@dataclass(frozen=True)
class Exchange:
    """A snapshot of one exchange. Of its headers only the conditions are kept, of its query only a listing's prefix."""

    number: int
    owner: str
    method: str
    verb: str
    bucket: str
    key: str
    prefix: str
    role: str
    table: str
    branch: str
    version: int | None
    conditions: tuple[tuple[str, str], ...]
    keys: tuple[str, ...]
    bytes_in: int
    bytes_out: int
    status: int | None
    answered: int | None
    outcome: str
    started: float
    ended: float | None
    listed: int

    @property
    def durable(self) -> bool:
        """Whether it can change the store."""
        return self.verb in DURABLE_VERBS

    @property
    def applied(self) -> bool:
        """Whether it did change the store, by what the store said."""
        return self.durable and self.status is not None and 200 <= self.status < 300

    def as_json(self) -> dict[str, Any]:
        """Plain JSON for traces and reports."""
        body = dataclasses.asdict(self)
        body["conditions"] = [list(condition) for condition in self.conditions]
        body["keys"] = list(self.keys)
        return body
