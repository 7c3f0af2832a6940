"""Drivers that are wrong in ways that no mutant of the collection is: `python -m failpoints.pairs.tests.broken NAME`.

Each patches the reference in its own process, as a mutant does.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from conformance.adapters.process import GAVE_UP_STATUS
from fixtures.mutants import patch
from reference import driver, graph
from reference.errors import CommitConflict, Conflict, ExpectedVersionMismatch, RowLevelCasContention
from reference.format.sidecar import Sidecar
from reference.protocol import recovery
from reference.protocol.audit import AuditRow
from reference.protocol.recovery import Observed
from reference.protocol.store import GraphStore


def losing_open() -> None:
    """Of two that open and recover one writer, the one that comes second fails."""

    def _roll_forward(store: GraphStore, sidecar: Sidecar, observed: list[Observed]) -> AuditRow:
        try:
            return right(store, sidecar, observed)
        except (ExpectedVersionMismatch, RowLevelCasContention, CommitConflict) as error:
            raise Conflict(f"the open lost: {error.message}", code="version_mismatch") from error

    right: Callable[..., AuditRow] = patch(recovery, "_roll_forward", _roll_forward)


def leaving_reader(status: int) -> None:
    """Whoever exports a graph in which `dan` is, and has not written it, ends with a status."""
    wrote: list[bool] = []

    def answer(self: driver.Session, line: bytes) -> Any:
        wrote.extend([True] if b'"mutate"' in line else [])
        found = right(self, line)
        if b'"export"' in line and b"dan" in str(found).encode() and not wrote:
            os._exit(status)
        return found

    right = patch(driver.Session, "answer", answer)


def blind_writer() -> None:
    """A mutation that was done is answered by an adapter that cannot see what became of it; whoever reads can."""
    read: list[bool] = []

    def answer(self: driver.Session, line: bytes) -> Any:
        read.extend([True] if b'"export"' in line else [])
        found = right(self, line)
        if b'"mutate"' not in line or "ok" not in found or read:
            return found
        error = {"kind": "storage", "code": "not_seen", "message": "it was done", "details": {}}
        return {"seq": found["seq"], "error": error}

    right = patch(driver.Session, "answer", answer)


def refusing_reader() -> None:
    """A read-only open is refused while anybody has a sidecar."""

    def open_graph(store: GraphStore, *, read_only: bool) -> list[AuditRow]:
        if read_only and store.sidecars.operation_ids():
            raise Conflict("somebody writes", code="busy")
        return right(store, read_only=read_only)

    right: Callable[..., list[AuditRow]] = patch(graph, "open_graph", open_graph)


DRIVERS: dict[str, Callable[[], None]] = {
    "losing-open": losing_open,
    "dying-reader": lambda: leaving_reader(101),
    "giving-up-reader": lambda: leaving_reader(GAVE_UP_STATUS),
    "refusing-reader": refusing_reader,
    "blind-writer": blind_writer,
}


def engine(name: str) -> str:
    """How a bench starts one of them."""
    return f"cmd:{sys.executable} -m {__name__} {name}"


if __name__ == "__main__":
    DRIVERS[sys.argv[1]]()
    driver.main()
