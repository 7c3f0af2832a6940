"""Refusals: how the model says no, in the kinds of the driver protocol.

    step                                         kind
    -------------------------------------------  -----------
    read the request, the records, the rules      bad_request
    look up a branch, a commit                    not_found
    a merge, or a branch that is in use           conflict

A judge compares `kind`, and for a merge the `conflicts`. The code and the message are for people: another engine may
word them as it likes. A request with two faults may be refused for either of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["bad_request", "not_found", "conflict"]
ConflictKind = Literal[
    "DivergentInsert",
    "DivergentUpdate",
    "DeleteVsUpdate",
    "OrphanEdge",
    "UniqueViolation",
    "CardinalityViolation",
    "ValueConstraintViolation",
]


@dataclass(frozen=True, order=True)
class Conflict:
    """One row that stands in the way of a merge; for a cardinality, the source node [MRG-02, MRG-03]."""

    table_key: str
    row_id: str
    kind: ConflictKind


class Refusal(Exception):
    """An operation that did not happen, and changed nothing."""

    def __init__(self, kind: Kind, code: str, message: str, conflicts: tuple[Conflict, ...] = ()) -> None:
        super().__init__(f"{kind} ({code}): {message}")
        self.kind = kind
        self.code = code
        self.message = message
        self.conflicts = conflicts


def bad_request(code: str, message: str) -> Refusal:
    return Refusal("bad_request", code, message)
