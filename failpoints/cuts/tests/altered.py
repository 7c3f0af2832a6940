"""The reference, altered in one way while a file exists: engines that no mutant is, lawful ones among them.

    python -m failpoints.cuts.tests.altered takes-its-move-back /tmp/flag

A mutant behaves well until a fault comes. These wait for the test to say when, by a file, because what they do when a
fault comes cannot be told from the fault by the engine alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from fixtures.mutants import patch
from reference import driver, graph
from reference.errors import Conflict, ExpectedVersionMismatch
from reference.format.manifest import TableEntry
from reference.format.sidecar import Sidecar
from reference.protocol import commit
from reference.protocol.audit import AuditRow
from reference.protocol.commit import TableWork
from reference.protocol.sidecars import Sidecars
from reference.protocol.store import GraphStore
from reference.storage.objects import TextObjects


def takes_its_move_back(flag: Path) -> None:
    """Lawful: a writer takes the lost answer to its own commit for a lost race, rolls that back, and tries again."""

    def _move(store: GraphStore, work: TableWork, operation_id: str, progress: Any) -> TableEntry:
        entry: TableEntry = right(store, work, operation_id, progress)
        if flag.exists():
            flag.unlink()
            raise ExpectedVersionMismatch(work.table_key, work.base.version, work.base.version + 1)
        return entry

    right: Callable[..., TableEntry] = patch(commit, "_move", _move)


def keeps_a_lease(flag: Path) -> None:
    """Lawful: a graph that is open has an object that says so, until the process ends or opens another."""

    def open_graph(store: GraphStore, *, read_only: bool) -> list[AuditRow]:
        found: list[AuditRow] = right(store, read_only=read_only)
        if not read_only and flag.exists():
            store.objects.write(LEASE, "open")
            held.append(store.objects)
        return found

    def answer(self: driver.Session, line: bytes) -> Any:
        while b'"close"' in line and held:
            held.pop().delete(LEASE)
        return asked(self, line)

    held: list[TextObjects] = []
    right: Callable[..., list[AuditRow]] = patch(graph, "open_graph", open_graph)
    asked: Callable[..., Any] = patch(driver.Session, "answer", answer)


def leaves_an_odd_sidecar(flag: Path) -> None:
    """Broken: beside its sidecar a writer leaves something that is none."""

    def put(self: Sidecars, sidecar: Sidecar) -> Sidecar:
        stamped: Sidecar = right(self, sidecar)
        if flag.exists():
            self._objects.write("__recovery/01ARZ3NDEKTSV4RRFFQ69G5FAV.json", "[]")
        return stamped

    right: Callable[..., Sidecar] = patch(Sidecars, "put", put)


def refuses_its_own_graph(flag: Path) -> None:
    """Broken: an init that hears late of its own graph says that there is one already."""

    def init_graph(store: GraphStore, source: str, *, force: bool = False) -> None:
        right(store, source, force=force)
        if flag.exists():
            flag.unlink()
            raise Conflict("there is a graph already", code="already_initialized")

    right: Callable[..., None] = patch(driver, "init_graph", init_graph)


LEASE: Final = "lease.json"
ALTERATIONS: Final = {
    each.__name__.replace("_", "-"): each
    for each in (takes_its_move_back, keeps_a_lease, leaves_an_odd_sidecar, refuses_its_own_graph)
}

if __name__ == "__main__":
    _, name, place = sys.argv
    sys.argv = sys.argv[:1]
    ALTERATIONS[name](Path(place))
    driver.main()
