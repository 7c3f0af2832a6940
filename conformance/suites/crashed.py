"""A graph whose writer died, and what must be true of it once it has been recovered.

    crash = Crashed.before_publish(graph, forge, lambda: graph.handle.mutate(…), writer_kind="Mutation")
    handle = crash.reopened()              # the read-write open that recovers
    crash.check_settled(handle, "RolledForward")

The operation runs through the engine to its end and is taken back by the forge, so that what the graph must hold after
a roll-forward is what the engine itself showed before the cut, and after a roll-back what it showed before all of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from conformance.audit.names import AUDIT_DIR, LOCK_BRANCH, MANIFEST_DIR, RECOVERY_ACTOR, SCHEMA_FILES, STAGING_FILES
from conformance.judge import Handle, JudgedGraph
from conformance.suites.graphs import node
from fixtures import golden
from fixtures.forge import Forge, NothingThere, Photo

LONG_AGO: Final = "1600000000000000"

# The smallest graphs in which a writer can die: one table, and two.
ITEM: Final = "node:Item"
OTHER: Final = "node:Other"
ONE: Final = "node Item {\n  name: String @key\n  size: I32?\n}\n"
TWO: Final = ONE + "node Other {\n  name: String @key\n}\n"
ITEMS: Final = (node("Item", name="a", size=1), node("Item", name="b"))
OTHERS: Final = (*ITEMS, node("Other", name="o"))

Answer = dict[str, Any]
Rows = Mapping[str, str]  # The export of every branch, by its name.


@dataclass(frozen=True)
class Crashed:
    """A graph in which one sidecar is pending."""

    graph: JudgedGraph
    forge: Forge
    operation_id: str
    before: Rows
    after: Rows
    pins: Mapping[str, int]
    heads: Mapping[str, int]
    commits: int
    branch: str = "main"

    @classmethod
    def before_publish(
        cls, graph: JudgedGraph, forge: Forge, operation: Callable[[], object], *, branch: str = "main", **cut: Any
    ) -> Crashed:
        """A kill after the last table commit, and before the publish."""
        return cls._cut(graph, forge, operation, forge.crash_between_commit_and_publish, branch, cut)

    @classmethod
    def half_way(
        cls, graph: JudgedGraph, forge: Forge, operation: Callable[[], object], *, branch: str = "main", **cut: Any
    ) -> Crashed:
        """A kill between two table commits."""
        return cls._cut(graph, forge, operation, forge.crash_half_way, branch, cut)

    @classmethod
    def after_publish(
        cls, graph: JudgedGraph, forge: Forge, operation: Callable[[], object], *, branch: str = "main", **cut: Any
    ) -> Crashed:
        """A kill between the publish and the removal of the sidecar."""
        published: list[Photo] = []

        def photographed() -> None:
            operation()
            published.append(forge.photograph(MANIFEST_DIR, *SCHEMA_FILES, *STAGING_FILES))

        crash = cls.before_publish(graph, forge, photographed, branch=branch, **cut)
        forge.restore(published[0])
        return replace(crash, before=crash.after, commits=crash.commits + 1)

    @classmethod
    def _cut(
        cls,
        graph: JudgedGraph,
        forge: Forge,
        operation: Callable[[], object],
        crash: Callable[..., str],
        branch: str,
        cut: Mapping[str, Any],
    ) -> Crashed:
        handle, seen = graph.handle, []
        before = rows_of(handle)

        def observed() -> None:
            operation()
            seen.append(rows_of(handle))

        operation_id = crash(observed, branch=None if branch == "main" else branch, **cut)
        return cls._found(graph, forge, operation_id, before, seen[0], branch)

    @classmethod
    def with_sidecar(cls, graph: JudgedGraph, forge: Forge, body: Answer) -> Crashed:
        """A graph with whatever drift it has, and a sidecar made by hand."""
        rows = rows_of(graph.engine.look(graph.uri))
        forge.write_sidecar(body)
        return cls._found(graph, forge, body["operation_id"], rows, rows, body["branch"] or "main")

    @classmethod
    def _found(
        cls, graph: JudgedGraph, forge: Forge, operation_id: str, before: Rows, after: Rows, branch: str
    ) -> Crashed:
        keys = forge.entries(branch)
        pins = {key: entry.version for key, entry in keys.items()}
        bodies = [json.loads(forge.sidecars()[f"__recovery/{operation_id}.json"])]
        covered = {pin["table_key"]: pin.get("table_branch") for body in bodies for pin in body["tables"]}
        heads = {key: _head(forge, key, covered.get(key, entry.branch), entry.version) for key, entry in keys.items()}
        commits = len(forge.decoded(branch).commits)
        return cls(graph, forge, operation_id, before, after, pins, heads, commits, branch)

    # -- what is pending -----------------------------------------------------------------------------------------------

    @property
    def sidecar_name(self) -> str:
        return f"__recovery/{self.operation_id}.json"

    @property
    def sidecar(self) -> Answer:
        body: Answer = json.loads(self.forge.sidecars()[self.sidecar_name])
        return body

    def drifted(self) -> dict[str, int]:
        """How far the HEAD of each table is ahead of its pin, where it is."""
        return {key: self.heads[key] - pin for key, pin in self.pins.items() if self.heads[key] != pin}

    def expected_kind(self) -> str:
        """Forward, unless an engine that builds indexes before it publishes moved a strict table on [REC-28]."""
        is_strict = self.sidecar["writer_kind"] in ("Mutation", "Load")
        return "RolledBack" if is_strict and any(each > 1 for each in self.drifted().values()) else "RolledForward"

    def rows_after(self, kind: str) -> Rows:
        return self.after if kind == "RolledForward" else self.before

    # -- going on ------------------------------------------------------------------------------------------------------

    def reopened(self) -> Handle:
        """The read-write open that recovers."""
        return self.graph.engine.open(self.graph.uri)

    def live_handle(self) -> Handle:
        """A handle that was opened before the crash: the sidecar, and a staged schema, come back after the open."""
        self.graph.engine.require_live_handles()
        with hidden(self.forge, "__recovery", *STAGING_FILES):
            return self.graph.engine.open(self.graph.uri)

    # -- what must be true afterwards ----------------------------------------------------------------------------------

    def audits(self, handle: Handle) -> list[Answer]:
        return [row for row in handle.recoveries() if row["operation_id"] == self.operation_id]

    def check_audit(self, handle: Handle, kind: str) -> Answer:
        """Exactly one audit row, of the right kind, that names who wrote what."""
        rows = self.audits(handle)
        assert [row["recovery_kind"] for row in rows] == [kind], f"one audit row {kind} is due, and there are {rows}"
        return rows[0]

    def check_sound(self, handle: Handle, rows: Rows) -> None:
        """No sidecar, the rows that are due on every branch, and each table's HEAD where the manifest pins it."""
        assert self.sidecar_name not in self.forge.sidecars(), "the sidecar is still there"
        assert rows_of(handle) == rows, "the rows are not what the recovery must leave"
        self._check_heads()

    def check_commit(self, handle: Handle, audit: Answer, *, branch: str | None = None) -> Answer:
        """The recovery's commit: on the branch of the sidecar, on top of its head, under the recovery's name."""
        where = branch or self.branch
        commits = handle.commits(where)
        made = [commit for commit in commits if commit["graph_commit_id"] == audit["graph_commit_id"]]
        assert len(made) == 1, f"the audit names the commit {audit['graph_commit_id']}, which '{where}' does not have"
        assert made[0].get("actor_id") == RECOVERY_ACTOR
        assert made[0]["manifest_branch"] == (None if where == "main" else where)
        parent = commits[commits.index(made[0]) - 1]
        assert made[0].get("parent_commit_id") == parent["graph_commit_id"], "its parent is not the head before it"
        return made[0]

    def check_outcomes(self, audit: Answer, kind: str) -> None:
        """Of every table that had moved: from what was expected to what is published, or from the HEAD to the pin."""
        outcomes = {each["table_key"]: (each["from_version"], each["to_version"]) for each in audit["outcomes"]}
        for key in self.drifted():
            forward, back = (self.pins[key], self.heads[key]), (self.heads[key], self.pins[key])
            assert outcomes.get(key) == (forward if kind == "RolledForward" else back), f"{key} in {audit['outcomes']}"

    def check_second_open(self, handle: Handle) -> None:
        """Nothing is left to do: another open adds no commit and no audit row, and moves nothing."""
        seen = (handle.commits(self.branch), handle.recoveries(), self._pins_now())
        again = self.reopened()
        assert (again.commits(self.branch), again.recoveries(), self._pins_now()) == seen
        self._check_heads()

    def _check_heads(self) -> None:
        """Of what the branch does not own it may read an older version than the owner's HEAD."""
        own = None if self.branch == "main" else self.branch
        for key, entry in self.forge.entries(self.branch).items():
            head = self.forge.head(key, self.branch)
            assert entry.branch != own or head == entry.version, f"{key}: HEAD {head}, and pinned is {entry.version}"

    def _pins_now(self) -> dict[str, int]:
        return {key: entry.version for key, entry in self.forge.entries(self.branch).items()}

    def check_settled(self, handle: Handle, kind: str) -> Answer:
        """All of it, for a crash that one open has resolved."""
        audit = self.check_audit(handle, kind)
        self.check_sound(handle, self.rows_after(kind))
        self.check_commit(handle, audit)
        self.check_outcomes(audit, kind)
        self.check_second_open(handle)
        return audit


def _head(forge: Forge, key: str, fork: str | None, pin: int) -> int:
    """The HEAD of a table's storage; a fork that the writer had not come to has not moved."""
    try:
        return int(forge.storage(key, fork).version)
    except NothingThere:
        return pin


def rows_of(handle: Handle) -> dict[str, str]:
    """The export of every branch."""
    branches = handle.branch_list() if handle.engine.supports("branch_list") else ["main"]
    return {branch: handle.export(branch) for branch in branches}


def drift(forge: Forge, table_key: str, versions: int, *, rows: bool = True) -> None:
    """Move a table on: each version adds one row, or changes nothing that a reader could see."""
    for number in range(versions):
        if rows:
            forge.raw_append(table_key, [{"id": f"new{number}", "name": f"new{number}"}])
        else:
            forge.raw_delete(table_key, "false")


@contextmanager
def hidden(forge: Forge, *prefixes: str) -> Iterator[None]:
    """Take objects away for a while, and put them back."""
    photo = forge.photograph(*prefixes)
    for name in photo.contents:
        forge.delete(name)
    yield
    for name, content in photo.contents.items():
        forge.write(name, content)


def let_die(forge: Forge) -> None:
    """Date every sidecar back: an engine may take a young one for that of a writer which is alive."""
    for name in forge.sidecars():
        forge.edit_json(name, lambda body: body.update(started_at=LONG_AGO))


def audit_table_exists(forge: Forge) -> bool:
    return bool(forge.list(AUDIT_DIR))


# -- graphs of the public engine ---------------------------------------------------------------------------------------


def put_golden(name: str, forge: Forge, scratch: Path) -> None:
    """Put a golden graph where the forge is; its sidecars name its tables there."""
    directory = golden.unpack(name, scratch)
    for path in sorted(each for each in directory.rglob("*") if each.is_file()):
        forge.write(path.relative_to(directory).as_posix(), path.read_bytes())

    def move(body: Answer) -> None:
        for pin in body["tables"]:
            pin["table_path"] = forge.table_uri(pin["table_key"])

    for sidecar in forge.sidecars():
        forge.edit_json(sidecar, move)


def check_recovered_golden(name: str, handle: Handle, forge: Forge) -> None:
    """The rows of main, and the audit, are what the public engine says. Of its other branches only the names: Lance
    keeps absolute addresses in them, so that a graph that was moved need not be able to read them [LAY-04]."""
    expected = golden.expect(name)
    assert handle.export("main") == expected["export"]["main"]
    assert forge.sidecars() == {}
    # Whether the lock of a schema apply is released is another promise [SCH-17].
    assert set(forge.branches()) - {LOCK_BRANCH} == set(expected["branches"]) - {"main"}
    told = ("recovery_kind", "operation_id", "sidecar_writer_kind", "recovery_for_actor")
    audits = [{**row, "outcomes": json.loads(row["per_table_outcomes_json"])} for row in expected["audit"]]
    assert [_told(row, told) for row in handle.recoveries()] == [_told(row, told) for row in audits]
    for key, entry in forge.entries().items():
        assert forge.head(key) == entry.version, f"{key} has drifted"


def _told(row: Answer, names: tuple[str, ...]) -> list[Any]:
    outcomes = [(each["table_key"], each["from_version"], each["to_version"]) for each in row["outcomes"]]
    return [*(row[name] for name in names), sorted(outcomes)]
