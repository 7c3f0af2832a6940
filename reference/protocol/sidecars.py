"""Sidecars on the store: put one before a HEAD moves, list them to see who else is at work.

Nobody can tell a dead writer's sidecar from a live one's in another process. Two rules make that bearable:

* **Put, then list.** Of two writers on one table that both put their sidecar before they list, at least one sees the
  other, and whoever sees another withdraws, or waits for it, while nothing of its own has moved yet.
* **A lease.** A sidecar of another process counts as alive until it is a second old. A writer moves HEADs only while
  its own sidecar is younger than half of that, and puts it anew otherwise. A lease keeps recovery from disturbing
  live writers; it is not what correctness rests on, because clocks differ and processes are suspended. What rests on
  nothing but the store is in `recovery`: every step there converges when a writer thought dead goes on.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Mapping
from dataclasses import replace

from reference.errors import Conflict, NotFound, OmniError
from reference.failpoint import fire
from reference.format.names import RECOVERY_DIR, branch_label
from reference.format.sidecar import Sidecar, decode_sidecar
from reference.protocol.publish import now_micros
from reference.protocol.queues import Queues
from reference.storage.objects import TextObjects

LEASE_SECONDS = 1.0
# A writer that is about to move a HEAD puts its sidecar anew when that is older than half of the lease, or than this
# setting says. Whoever counts requests asks for more: then their number does not depend on how slow the writer is.
RENEW_VARIABLE = "OMNIREF_RENEW_SECONDS"


def sidecar_file(operation_id: str) -> str:
    return f"{RECOVERY_DIR}/{operation_id}.json"


class Sidecars:
    """The recovery directory of one graph."""

    def __init__(self, objects: TextObjects, queues: Queues, env: Mapping[str, str]) -> None:
        given = env.get(RENEW_VARIABLE, "")
        self._renew_seconds = float(given) if given.isdecimal() else LEASE_SECONDS / 2
        self._objects = objects
        self._queues = queues
        self._first_seen: dict[tuple[str, int], float] = {}

    def operation_ids(self) -> list[str]:
        """The pending operations, oldest first. A listing that fails is never taken for an empty one [REC-12]."""
        fire("recovery.sidecar_list")
        names = self._objects.list_dir(RECOVERY_DIR)
        return sorted(name.removesuffix(".json") for name in names if name.endswith(".json"))

    def read(self, operation_id: str) -> Sidecar | None:
        """One sidecar; None if it is gone meanwhile."""
        try:
            return decode_sidecar(operation_id, self._objects.read(sidecar_file(operation_id)))
        except NotFound:
            return None

    def pending(self, *, but: str | None = None) -> list[Sidecar]:
        """All sidecars but one, oldest first. One that cannot be understood stops whoever asks [REC-10, REC-11]."""
        found = (self.read(operation_id) for operation_id in self.operation_ids() if operation_id != but)
        return [sidecar for sidecar in found if sidecar is not None]

    def other_schema_apply(self, mine: Sidecar) -> bool:
        """Whether the lock and the staging files may be another's: a second schema apply is pending beside mine."""
        return any(other.writer_kind == "SchemaApply" for other in self.pending(but=mine.operation_id))

    def put(self, sidecar: Sidecar) -> Sidecar:
        """Write a sidecar, with the time from which its lease counts."""
        fire("recovery.sidecar_write")
        stamped = replace(sidecar, started_at=now_micros())
        self._objects.write(sidecar_file(stamped.operation_id), stamped.encode())
        return stamped

    def confirm(self, sidecar: Sidecar, versions: dict[str, int]) -> Sidecar:
        """Rewrite a merge's sidecar with the versions that its tables have reached [REC-08]."""
        fire("recovery.sidecar_confirm")
        confirmed = sidecar.confirmed(versions)
        self._objects.write(sidecar_file(confirmed.operation_id), confirmed.encode())
        return confirmed

    def put_back(self, sidecar: Sidecar) -> None:
        """Cover a move that another process thought it had dealt with."""
        self._objects.write_if_absent(sidecar_file(sidecar.operation_id), sidecar.encode())

    def remove(self, operation_id: str) -> None:
        """Delete a sidecar."""
        fire("recovery.sidecar_delete")
        self._objects.delete(sidecar_file(operation_id))

    def disarm(self, operation_id: str) -> None:
        """Delete the sidecar of a write that is visible. Failure is recovery's business, not the caller's [REC-13]."""
        try:
            self.remove(operation_id)
        except OmniError:
            return

    def exists(self, operation_id: str) -> bool:
        return self._objects.probe(sidecar_file(operation_id)) is not None

    def arm(self, sidecar: Sidecar, watch: frozenset[str] = frozenset()) -> Sidecar:
        """Put, then list until nobody else is on the same tables, or on one of `watch`.

        Of writers that see each other the oldest stays and waits: a younger one withdraws when it lists, or has listed
        before and will be done soon. Whoever sees an older one withdraws and says so.
        """
        armed = self.put(sidecar)
        try:
            while rivals := self._rivals(armed, watch):
                for rival in rivals:
                    alive = self.presumed_alive(rival)
                    if rival.operation_id < armed.operation_id or not alive:
                        raise busy(rival, alive=alive)
                threading.Event().wait(random.uniform(0.01, 0.03))
                armed = self.renew(armed)
        except BaseException:
            self.disarm(armed.operation_id)
            raise
        return armed

    def _rivals(self, mine: Sidecar, watch: frozenset[str]) -> list[Sidecar]:
        listed = self.operation_ids()
        if mine.operation_id not in listed:
            raise Conflict(
                "another process took this writer for dead and removed its sidecar", code="sidecar_busy", hint="retry"
            )
        others = (self.read(operation_id) for operation_id in listed if operation_id != mine.operation_id)
        return [other for other in others if other is not None and stands_in_the_way(mine, other, watch)]

    def renew(self, sidecar: Sidecar) -> Sidecar:
        """Keep the lease of a writer that is about to move a HEAD."""
        age = now_micros() - sidecar.started_at
        return self.put(sidecar) if age > self._renew_seconds * 1e6 else sidecar

    def presumed_alive(self, sidecar: Sidecar) -> bool:
        """Whether to leave a sidecar alone for now."""
        here = self._queues.is_alive(sidecar.operation_id)
        if here is not None:
            return here
        seen = self._first_seen.setdefault((sidecar.operation_id, sidecar.started_at), time.monotonic())
        age = (now_micros() - sidecar.started_at) / 1e6
        # A clock that is ahead of ours must not keep a dead writer alive for ever.
        return max(age, time.monotonic() - seen) < LEASE_SECONDS


def stands_in_the_way(mine: Sidecar, other: Sidecar, watch: frozenset[str]) -> bool:
    """Whether another intent touches a table of mine, or one that I must not see changing, on the same branch.

    Edges and their endpoints are in different tables. Who adds edges watches the endpoints' tables, and who removes
    nodes watches the edge tables, so that no edge is added to a node that is just being removed.
    """
    if any((pin.table_key in watch and other.branch == mine.branch) for pin in other.tables):
        return True
    if mine.writer_kind == other.writer_kind == "SchemaApply":
        return True  # There is one set of staging files.
    return bool(_places(mine) & _places(other))


def _places(sidecar: Sidecar) -> set[tuple[str, str | None]]:
    places = {(pin.table_key, pin.table_branch) for pin in sidecar.tables}
    return places | {(item.table_key, item.table_branch) for item in sidecar.additional_registrations}


def busy(rival: Sidecar, *, alive: bool) -> Conflict:
    """Another writer's intent stands in the way."""
    where = branch_label(rival.branch)
    message = f"a {rival.writer_kind} on branch '{where}' is pending on the same table"
    return Conflict(
        message,
        code="sidecar_busy" if alive else "recovery_pending",
        details={"operation_id": rival.operation_id, "writer_kind": rival.writer_kind},
        hint="retry" if alive else "open the graph read-write, or run 'recover', so that it can be dealt with",
    )
