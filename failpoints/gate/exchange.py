"""One request and its answer, as a value: what was asked for, what the store said, and what the client heard."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Final

from failpoints.gate.roles import DURABLE_VERBS

# How an object comes to be there whole, at once: by a put, by a copy, or by the end of an upload in parts.
WRITE_VERBS: Final = ("PUT", "COPY", "COMPLETE_UPLOAD")
# Files with a name of their own, which nobody looks for before a version names them.
_NAMED_LATER: Final = (" data", " transaction", " deletion", " index")
OUTCOMES: Final = ("answered", "refused", "cut", "injected", "client_gone", "store_gone", "in_flight", "held")


@dataclass(frozen=True)
class Exchange:
    """A snapshot of one exchange.

    Of its headers only the conditions and the range are kept, of its query a listing's prefix and where it goes on. The
    `portion` is which bytes of an object or which page of a listing it asks for; empty for a whole one and a first one.
    """

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
    portion: str = ""

    @property
    def durable(self) -> bool:
        """Whether it can change the store."""
        return self.verb in DURABLE_VERBS

    @property
    def applied(self) -> bool:
        """Whether it did change the store, by what the store said."""
        return self.durable and self.status is not None and 200 <= self.status < 300

    @property
    def named_later(self) -> bool:
        """Whether it is about a file that nobody looks for before a version names it."""
        return self.role.endswith(_NAMED_LATER)

    @property
    def met_by_nobody(self) -> bool:
        """Whether it comes to the same before and after whatever others do, as long as nobody removes what is there.

        What is written once reads alike at any time, and a file that no version names yet is seen by nobody. A request
        that found nothing, or that was bound to a condition, may end otherwise at another time.
        """
        if self.conditions or self.status is None or not 200 <= self.status < 300:
            return False
        reads = self.verb in ("GET", "HEAD")
        return (reads and self.role.endswith(" version")) or (self.named_later and (reads or self.verb in WRITE_VERBS))

    def follows(self, earlier: Exchange) -> bool:
        """Whether it was sent when the answer to an earlier one was there."""
        return earlier.ended is not None and self.started >= earlier.ended

    def as_json(self) -> dict[str, Any]:
        """Plain JSON for traces and reports."""
        body = dataclasses.asdict(self)
        body["conditions"] = [list(condition) for condition in self.conditions]
        body["keys"] = list(self.keys)
        return body
