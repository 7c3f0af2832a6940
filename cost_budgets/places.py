"""Graphs that grow by real commits, and the counting of what an engine does with them.

Everything goes through the gate, so what is counted is what the store was asked for, by whichever process.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

import lance

from conformance.adapters import AdapterFault, EngineError
from conformance.audit.names import LOCK_BRANCH
from conformance.judge import Handle
from conformance.judge.graph import text_of
from cost_budgets.counters import Tally
from cost_budgets.operations import JUST_OPTIMIZED, Ground, Operation
from cost_budgets.preparing import DOCUMENTS, NARROW, ROWS_OF_A_LOAD, SCHEMA, a_document, wide
from failpoints.drivers import Driver, killed_when_held
from failpoints.gate import Exchange, Rule
from failpoints.steps import MAIN
from failpoints.workshop import Bench, SweepBroken
from failpoints.world import UNKNOWN, attempt
from failpoints.writers import insert, insert_edge, mutate
from fixtures.forge import Forge
from fixtures.stores.catalog import Store

# Engines may wait for a writer of which they cannot know whether it lives; so a dead one is found when it is older.
OLD_ENOUGH_SECONDS: Final = 3.0
# An engine that has answered is at rest when it has asked for nothing for so long, and it has to come to rest.
QUIET_SECONDS: Final = 0.06
# Some engines answer, rest, and work on. They are watched for so long, and whoever does it is waited for so long.
LATE_SECONDS: Final = 1.0
REST_SECONDS_MAX: Final = 10.0
# A store that keeps a request waiting for so long has stalled.
STALL_SECONDS: Final = 3.0
# How often an engine may put a version of the manifest in one write before it publishes.
_TIDYING_MAX: Final = 3
# With what an engine can make a version of the manifest.
_PUBLISHES: Final = ("PUT", "COPY", "COMPLETE_UPLOAD")
# Every few commits go to other tables, so that none of a graph's tables stays as it was.
_OTHERS_EVERY: Final = 5


class MeasuringFailed(SweepBroken):
    """An operation that is measured did not work: what it was, and what the engine said."""


class WorksLate(Exception):
    """An engine was quiet after its answer, and then went on: what was counted in haste may be another's work."""


class StoreStumbled(Exception):
    """The store did not do what it was asked for, and said that it could not: how, and at which request."""


class GrowingGraph:
    """One graph, the process that has it open, and, where somebody asked for it, another one.

    A `patient` graph waits long before and after each operation, for an engine that works late.
    """

    def __init__(self, bench: Bench, store: Store, ground: Ground, *, patient: bool = False) -> None:
        self.ground = ground
        self._quiet_seconds = LATE_SECONDS if patient else QUIET_SECONDS
        self._patient = patient
        self._bench = bench
        self._env = store.env
        self._names = itertools.count(1)
        self.uri = store.fresh_root()
        self._driver = bench.drivers.take()
        self._other: Driver | None = None
        self._reader: Handle | None = None
        self._branches: list[str] = []
        self._documents = 0
        self._died_at: float | None = None
        self._fresh_root = store.fresh_root
        self.load_rows = ROWS_OF_A_LOAD
        self._tables = NARROW + (ground == "payloads")

    def begin(self, schema: str | None = None) -> None:
        """Make the graph, with its first rows."""
        if schema is None:
            schema = SCHEMA + DOCUMENTS if self.ground == "payloads" else SCHEMA
        self._driver.engine.init(self.uri, schema)
        self.handle = self._driver.engine.open(self.uri)
        self.handle.load(text_of(_FIRST), "merge")

    def close(self) -> None:
        for driver in (self._driver, self._other):
            if driver is not None:
                self._bench.drivers.done(driver)

    # -- what operations need ------------------------------------------------------------------------------------------

    def name(self) -> str:
        return f"n{next(self._names):05d}"

    def other(self) -> Handle:
        if self._reader is None:
            self._other = self._bench.drivers.take()
            self._reader = self._other.engine.look(self.uri)
        return self._reader

    # -- growing -------------------------------------------------------------------------------------------------------

    def depth(self) -> int:
        return len(self.handle.commits())

    def grow(self, depth: int) -> None:
        """Commit until main is so deep."""
        for number in range(self.depth(), depth):
            name = self.name()
            if number % _OTHERS_EVERY == 0:
                self.handle.mutate(insert("Company", name=name), insert("Project", name=name))
            elif number % _OTHERS_EVERY == 1:
                self.handle.mutate(insert_edge("Knows", "ann", "bob"), insert_edge("WorksAt", "ann", "acme"))
            else:
                self.handle.mutate(insert("Person", name=name, age=number))
        if self.ground == "optimized":
            # A merge reads the manifest as its base has left it. However much was written until now, the optimize
            # before the measurement is to find little.
            self.handle.optimize()
            self.handle.mutate(insert("Person", name=self.name()))

    def branch_out(self, branches: int) -> None:
        """Make branches, each with a table of its own, until there are so many. All start from a main in good order:
        what they inherit is not to depend on what was measured before."""
        self.handle.optimize()
        while len(self._branches) < branches:
            self._branches.append(self.name())
            self.handle.branch_create(self._branches[-1])
            self.handle.mutate(insert("Person", name=self.name()), branch=self._branches[-1])

    def fill(self, documents: int) -> None:
        """Insert rows with payloads, each in a commit of its own, until there are so many."""
        while self._documents < documents:
            a_document(self)
            self._documents += 1

    def widen(self, tables: int) -> None:
        """Begin anew, with so many tables in the catalog: to add them to this graph would be history."""
        if tables == self._tables:
            return
        self.handle.close()
        self.uri, self._tables = self._fresh_root(), tables
        self.begin(wide(tables))

    def sizes(self) -> dict[str, float]:
        """The variables that are a choice of whoever measures."""
        return {"C": self._tables, **({"R": self.load_rows} if self.ground == "loads" else {})}

    def crash(self) -> None:
        """Have a writer die between its table's commit and its publish: somebody has to finish that.

        The first version of the manifest that it puts may be no publish yet: an engine may tidy up before it. Then
        there is no sidecar to be seen, and the next one dies at the second.
        """
        forge = Forge(self.uri, dict(self._env))
        for nth in range(1, _TIDYING_MAX + 2):
            self._die_before(nth)
            if forge.sidecars():
                self._died_at = time.monotonic()
                return
        raise MeasuringFailed("a writer died before it put a version of the manifest, and left no sidecar")

    def _die_before(self, nth: int) -> None:
        driver, gate = self._bench.drivers.take(), self._bench.gate
        handle = driver.engine.open(self.uri)
        armed = gate.arm(Rule("hold", owner=driver.owner, verbs=_PUBLISHES, roles=("manifest version",), nth=nth))
        try:
            step = mutate(insert("Person", name=self.name()))
            ending, killed = killed_when_held(driver, armed, lambda: attempt(handle, step))
        finally:
            armed.disarm()
            self._bench.drivers.done(driver)
        if not killed or ending.kind != UNKNOWN:
            raise MeasuringFailed(f"a writer was to die before its publish, and ended {ending}")

    # -- counting ------------------------------------------------------------------------------------------------------

    def variables(self, operation: Operation) -> dict[str, float]:
        """What a budget may depend on, as it is before the operation.

        It is read from the bytes. Whoever is measured may have put work off until its next call, and that is to be the
        one that is counted.
        """
        forge = Forge(self.uri, dict(self._env))
        files = sum(_files(forge.storage(key)) for key in operation.touches)
        return {
            "T": len(operation.touches),
            "H": len(forge.decoded().commits),
            "B": len(set(forge.branches()) - {LOCK_BRANCH}),
            "R": operation.rows,
            "F": files,
        }

    def count(self, operation: Operation, *, watched: bool = False) -> tuple[Mapping[str, float], Tally]:
        """Get ready, look at the variables, and count one operation.

        One that is `watched` raises `WorksLate` if its process goes on after it was quiet, before it or after it. Where
        the store stumbles, who asks again pays for the store: then all of it is done once more, from the preparation.
        """
        watched = watched and not self._patient
        try:
            return self._count_in_weather(operation, watched=watched)
        except StoreStumbled:
            self._tidy(operation)
            if self.ground == "crashed":
                self.crash_at(0)  # It is as deep as it has to be, and what the dead writer left may be gone.
        try:
            return self._count_in_weather(operation, watched=watched)
        except StoreStumbled as again:
            message = f"{operation.name} on the {self.ground} graph: {again}, and so it did before"
            raise MeasuringFailed(f"{message}. This says nothing about the engine") from again

    def _count_in_weather(self, operation: Operation, *, watched: bool) -> tuple[Mapping[str, float], Tally]:
        """Count, and raise `StoreStumbled` where it is the store's fault that it cannot be done."""
        began = self._bench.gate.mark()
        try:
            return self._count(operation, watched=watched)
        except (EngineError, AdapterFault, MeasuringFailed) as error:
            if isinstance(error, AdapterFault):
                self._go_on_in_new_processes()
            stumbled = stumble_of(self._bench.gate.exchanges(since=began))
            if stumbled is not None:
                raise StoreStumbled(stumbled) from error
            if isinstance(error, MeasuringFailed):
                raise
            raise MeasuringFailed(f"{operation.name} on the {self.ground} graph: {error}") from error

    def _go_on_in_new_processes(self) -> None:
        """A driver that broke down in one operation would be in the way of all others."""
        self.close()
        self._other = self._reader = None
        self._driver = self._bench.drivers.take()
        self.handle = self._driver.engine.open(self.uri)

    def _count(self, operation: Operation, *, watched: bool) -> tuple[Mapping[str, float], Tally]:
        if self._is_behind and not operation.cold:
            self.handle.commits()  # What others have written is no operation's to catch up with.
            self._is_behind = False
        if self.ground in JUST_OPTIMIZED:
            self.handle.optimize()
        if self.ground == "crashed":
            self._until_old_enough()
            # Whoever is asked about the graph would finish the dead writer's work: its depth is what it was before.
            given, variables = operation.prepare(self), {"T": 1.0, "H": float(self._depth_before), "B": 0.0, "R": 0.0}
            variables["F"] = float(_files(Forge(self.uri, dict(self._env)).storage(operation.touches[0])))
        else:
            given = operation.prepare(self)
            # From here on nobody asks the handle for anything: what it still owes belongs to the operation.
            variables = self.variables(operation)
        driver = self._bench.drivers.take() if operation.cold else None
        whose = driver or (self._other if operation.elsewhere else self._driver)
        assert whose is not None
        gate = self._bench.gate
        if driver is None:
            self._rest(whose.owner, operation)  # What it still does for the preparation is not counted.
            if watched:
                self._watch(whose.owner, operation)
        gate.settle()
        mark = gate.mark()
        try:
            operation.work(self if driver is None else driver.engine, given)
            self._rest(whose.owner, operation)  # What it still does for the operation is.
            if watched:
                self._watch(whose.owner, operation)
        finally:
            if driver is not None:
                self._is_behind = True
                self._bench.drivers.done(driver)
        gate.settle()
        # Whoever else has the graph open may look at it meanwhile: that is not this operation's doing.
        tally = Tally.of(gate.exchanges(whose.owner, since=mark))
        stumbled = stumble_of(tally.exchanges)
        if stumbled is not None:
            raise StoreStumbled(stumbled)
        if self.ground == "crashed" and Forge(self.uri, dict(self._env)).sidecars():
            raise MeasuringFailed(
                f"{operation.name}: the dead writer's sidecar is still there, so nothing was recovered"
            )
        self._tidy(operation)
        return variables, tally

    def _rest(self, owner: str, operation: Operation) -> None:
        """Wait until a process that has answered asks the store for nothing more: what it does after that costs too."""
        gate, never = self._bench.gate, threading.Event()
        deadline = time.monotonic() + REST_SECONDS_MAX
        while time.monotonic() < deadline:
            gate.settle(owner)
            mark = gate.mark()
            never.wait(self._quiet_seconds)
            if not gate.exchanges(owner, since=mark) and not gate.in_flight(owner):
                return
        raise MeasuringFailed(
            f"{operation.name} on the {self.ground} graph does not come to rest: {REST_SECONDS_MAX:g} seconds after its"
            " answer the engine still sends requests"
        )

    def _watch(self, owner: str, operation: Operation) -> None:
        """Look for a while whether a process that has come to rest really has."""
        gate = self._bench.gate
        mark = gate.mark()
        threading.Event().wait(LATE_SECONDS)
        if gate.exchanges(owner, since=mark) or gate.in_flight(owner):
            raise WorksLate(f"{operation.name} on the {self.ground} graph")

    def _tidy(self, operation: Operation) -> None:
        """Take the branches away that an operation has made: the next one is to find as many as this one did."""
        if "branch_create" in operation.needs and self._driver.engine.supports("branch_delete"):
            for name in set(self.handle.branch_list()) - {MAIN, *self._branches}:
                self.handle.branch_delete(name)

    _depth_before = 0
    # Whether another process may have written since this one has looked.
    _is_behind = False

    def crash_at(self, depth: int) -> None:
        """Grow, and then have a writer die."""
        if self._died_at is not None:
            self._go_on_after_recovery()
        self.grow(depth)
        self._depth_before = self.depth()
        self.handle.close()
        self.crash()

    def _go_on_after_recovery(self) -> None:
        """Through a handle that knows of it."""
        with suppress(EngineError):
            self.handle.close()
        self.handle = self._driver.engine.open(self.uri)

    def _until_old_enough(self) -> None:
        if self._died_at is not None:
            left = OLD_ENOUGH_SECONDS - (time.monotonic() - self._died_at)
            threading.Event().wait(max(0.0, left))


def stumble_of(exchanges: Iterable[Exchange]) -> str | None:
    """The first request at which the store itself failed or asked for patience, in words; None if it never did.

    A store that does not know a request says 501, and would say it again: that is an answer like any other. Whoever
    waits long for an answer gives up, and asks again or breaks down: that is the store's doing too.
    """
    for each in exchanges:
        if each.outcome == "store_gone":
            return f"the store hung up on a {each.verb}"
        if each.outcome == "client_gone" and each.status is None and each.ended is not None:
            waited = each.ended - each.started
            if waited >= STALL_SECONDS:
                return f"the store did not answer a {each.verb} in {waited:.0f} s"
        if each.status is not None and (each.status == 429 or (each.status >= 500 and each.status != 501)):
            return f"the store answered {each.status} to a {each.verb}"
    return None


def _files(table: lance.LanceDataset) -> int:
    """How many files have to be read for all rows of a table: one for each fragment, and one more for its deletions."""
    return sum(1 + (fragment.deletion_file() is not None) for fragment in table.get_fragments())


_FIRST: Final[list[dict[str, Any]]] = [
    {"type": "Person", "data": {"name": "ann", "age": 30, "email": "ann@x"}},
    {"type": "Person", "data": {"name": "bob", "age": 31}},
    {"type": "Company", "data": {"name": "acme", "size": 3}},
    {"type": "Project", "data": {"name": "moon"}},
    {"edge": "Knows", "from": "ann", "to": "bob", "data": {}},
    {"edge": "WorksAt", "from": "bob", "to": "acme", "data": {}},
    {"edge": "Leads", "from": "ann", "to": "moon", "data": {}},
]
