"""PUB: several processes on one graph at the same moment.

Nobody says who wins. The chain of commits tells in which order it happened, so everything that was acknowledged is done
again in that order on the model: it must give the same answers and the same rows. What was refused is a typed conflict,
or a rule that was broken by then, and has left nothing. Afterwards every table can be written.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import pytest

from conformance.adapters import EngineError
from conformance.judge import Handle, JudgedGraph, proving
from conformance.model import Refusal
from conformance.model.merge import Commit
from conformance.runner.plugin import ForgeOf, Judged, Peers
from conformance.suites.graphs import PEOPLE, SOCIAL, delete, insert, insert_edge, lines, node, person, update, where
from fixtures.forge import Forge

Statement = Mapping[str, Any]
ROUNDS: Final = 3


@dataclass(frozen=True)
class Call:
    """A mutation, or an overwrite load, that one of the racers has made, and how it ended."""

    statements: tuple[Statement, ...]
    overwrite: str | None = None
    answer: Mapping[str, Any] | None = None
    error: EngineError | None = None

    @property
    def commit(self) -> Mapping[str, Any] | None:
        return None if self.answer is None else self.answer["commit"]


Work = Callable[[], list[Call]]
# Each call has a name of its own: some engines tell a commit from those of others by who made it.
RACERS: Final = itertools.count(1)


def mutation(handle: Handle, *statements: Statement) -> Call:
    try:
        return Call(statements, answer=handle.mutate(*statements, actor=f"racer {next(RACERS)}"))
    except EngineError as error:
        return Call(statements, error=error)


def overwrite(handle: Handle, *records: Statement) -> Call:
    data = lines(*records)
    try:
        return Call((), data, answer=handle.load(data, "overwrite", actor=f"racer {next(RACERS)}"))
    except EngineError as error:
        return Call((), data, error=error)


def race(*works: Work) -> list[Call]:
    """Run them at the same moment, each in a thread."""
    start = threading.Barrier(len(works))

    def run(work: Work) -> list[Call]:
        start.wait()
        return work()

    with ThreadPoolExecutor(len(works)) as threads:
        return [call for calls in threads.map(run, works) for call in calls]


def once(handle: Handle, statement: Statement) -> Work:
    return lambda: [mutation(handle, statement)]


def one_each(handles: Sequence[Handle], statements: Sequence[Statement]) -> list[Call]:
    """One mutation by each handle."""
    return race(*(once(handle, statement) for handle, statement in zip(handles, statements, strict=True)))


def replay(graph: JudgedGraph, calls: Sequence[Call], *, kinds: Sequence[str] = ("conflict",)) -> None:
    """Hold a race against the model, in the order in which the chain of commits says that it happened."""
    for call in calls:
        if call.error is not None:
            assert call.error.kind in kinds, f"{call.overwrite or call.statements} ended with {call.error}"
    by_commit = {call.commit["graph_commit_id"]: call for call in calls if call.commit is not None}
    chain = graph.handle.commits()
    ids = [commit["graph_commit_id"] for commit in chain]
    assert len(ids) == len(set(ids)) and set(by_commit) <= set(ids), "every acknowledged commit is in the chain, once"
    for before, after in zip(chain, chain[1:], strict=False):
        assert after["parent_commit_id"] == before["graph_commit_id"], "the commits are one chain"
        assert after["manifest_version"] > before["manifest_version"]
    for commit in chain[len(graph.model.commits()) :]:
        done = by_commit.get(commit["graph_commit_id"])
        made = graph.model.maintain("main") if done is None else redo(graph, done)
        graph.model.identify(made, commit["graph_commit_id"], commit["manifest_version"], commit["created_at"])
    # Everything acknowledged is in the chain: what else is there, or is missing, was done by a call that was refused.
    graph.compare("a race", "PUB-20" if all(call.error is None for call in calls) else "PUB-23")


def redo(graph: JudgedGraph, call: Call) -> Commit:
    """What was acknowledged, in its turn: the same rows must be affected."""
    assert call.answer is not None
    what = call.overwrite or call.statements
    try:
        if call.overwrite is not None:
            return graph.model.load(call.overwrite, mode="overwrite").commit
        meant = graph.model.mutate(call.statements)
    except Refusal as refusal:
        pytest.fail(f"{what} was acknowledged, and in its turn it had to be refused: {refusal}")
    found = call.answer["affected_nodes"], call.answer["affected_edges"]
    right = meant.affected_nodes, meant.affected_edges
    assert found == right and meant.commit is not None, f"{what} affected {found}, and in its turn it is {right}"
    return meant.commit


def assert_sound(graph: JudgedGraph, disk: Forge, statements: Sequence[Statement]) -> None:
    """A fresh open finds nothing pending, no table ahead of its pin, and can write to every table."""
    graph.reopen()
    assert disk.sidecars() == {}, "nothing is pending"
    for key in disk.entries():
        assert disk.head(key) == disk.pin(key), f"{key} is ahead of its pin"
    for statement in statements:
        graph.mutate(statement)


EVERY_TABLE: Final = (
    insert("Person", name="last"),
    insert("Company", name="last"),
    insert_edge("Knows", "last", "last", id="last"),
    insert_edge("WorksAt", "last", "last", id="last"),
)


def racers(graph: JudgedGraph, peers: Peers, count: int) -> list[Handle]:
    """Handles of so many processes, started side by side; the first is the one that there is already."""
    with ThreadPoolExecutor(count) as threads:
        return [graph.engine.open(graph.uri), *threads.map(lambda _: peers().open(graph.uri), range(count - 1))]


# -- who wins ----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("PUB-08", "PUB-09", "PUB-06")
def test_writers_on_different_tables_all_commit_in_one_chain(judged: Judged, peers: Peers, forge: ForgeOf) -> None:
    graph = judged("".join(f"node T{n} {{ name: String @key }}\n" for n in range(4)))
    handles = racers(graph, peers, 4)

    def insists(handle: Handle, number: int) -> list[Call]:
        """A conflict over the manifest may be reported; who tries again gets through."""
        calls: list[Call] = []
        while not calls or (calls[-1].error is not None and len(calls) < 20):
            calls.append(mutation(handle, insert(f"T{number}", name="x")))
        return calls

    calls = race(*(lambda handle=handle, n=n: insists(handle, n) for n, handle in enumerate(handles)))

    with proving("PUB-08", "PUB-06"):
        replay(graph, calls)
        assert sorted(row["row_count"] for row in graph.handle.snapshot()["tables"]) == [1, 1, 1, 1]
    with proving("PUB-09"):
        recorded = {commit["graph_commit_id"]: commit for commit in graph.handle.commits()}
        for call in calls:
            if call.commit is not None:
                assert recorded[call.commit["graph_commit_id"]] == call.commit, "as answered, so recorded"
        assert_sound(graph, forge(graph.uri), [insert(f"T{n}", name="last") for n in range(4)])


@pytest.mark.requirement("PUB-07", "PUB-18", "PUB-20", "PUB-02")
def test_of_updates_that_build_on_one_version_one_wins(judged: Judged, peers: Peers, forge: ForgeOf) -> None:
    """Each changes what it finds at nought: after the first of them, nobody finds anything."""
    graph = judged(SOCIAL, [person("ann", age=0), person("bob", age=0)])
    handles = racers(graph, peers, 3)

    with proving("PUB-07", "PUB-18", "PUB-20", "PUB-02"):
        for number in range(ROUNDS):
            calls = one_each(handles, [update("Person", where("age", 0), age=n) for n in (1, 2, 3)])
            winners = [call for call in calls if call.commit is not None]
            replay(graph, calls)
            assert len(winners) <= 1, f"round {number}: at most one of them wins, and {len(winners)} have"
            graph.mutate(update("Person", {"all": True}, age=0))
        assert_sound(graph, forge(graph.uri), [insert("Person", name="last")])


@pytest.mark.requirement("PUB-03", "PUB-04", "DEL-05")
def test_a_stale_delete_is_a_conflict_that_names_the_table_and_both_versions(
    judged: Judged, peers: Peers, forge: ForgeOf
) -> None:
    """Whether two of them meet is up to the machine; those that do are looked at."""
    graph = judged(SOCIAL, [person(f"p{n}", age=n) for n in range(12)])
    handles = racers(graph, peers, 3)
    stale: list[EngineError] = []

    for number in range(ROUNDS):
        victims = [delete("Person", where("age", number * 4 + n)) for n in range(2)]
        calls = one_each(handles, [*victims, update("Person", where("age", 20, "lt"), email=None)])
        with proving("DEL-05"):
            replay(graph, calls)
        stale += [call.error for call in calls if call.error is not None and "expected" in call.error.details]
    if not stale:
        pytest.skip("no two of the writers met in a way that an engine has to report")
    pinned = {row["table_version"] for row in forge(graph.uri).rows() if row["table_key"] == "node:Person"}
    with proving("PUB-03"):
        for error in stale:
            assert error.kind == "conflict" and error.details["table_key"] == "node:Person", f"{error.details}"
            assert error.details["expected"] != error.details["actual"], f"{error.details}"
    with proving("PUB-04"):
        for error in stale:
            assert {error.details["expected"], error.details["actual"]} <= pinned, "both were versions of the table"
            assert error.details["actual"] > error.details["expected"], "the actual one is the later one"


@pytest.mark.requirement("PUB-02", "DEL-05", "VAL-09")
def test_no_edge_begins_or_ends_at_a_node_that_another_process_removes(
    judged: Judged, peers: Peers, forge: ForgeOf
) -> None:
    """The delete does not write the row that the insert needs, and the insert does not write the table of nodes."""
    graph = judged(SOCIAL, [person("hub"), person("rim"), *(person(f"p{n}") for n in range(ROUNDS))])
    handles = racers(graph, peers, 3)

    with proving("PUB-02", "DEL-05", "VAL-09"):
        for number in range(ROUNDS):
            victim = f"p{number}"
            ends = [("rim", victim), (victim, "hub")]
            inserts = [insert_edge("Knows", *pair, id=f"{number} {n}") for n, pair in enumerate(ends)]
            calls = one_each(handles, [*inserts, delete("Person", where("name", victim))])
            replay(graph, calls, kinds=("conflict", "bad_request"))
        assert_sound(graph, forge(graph.uri), EVERY_TABLE)


@pytest.mark.requirement("PUB-18", "LOD-10")
def test_an_overwrite_drops_nobody_whom_another_process_ties_an_edge_to(
    judged: Judged, peers: Peers, forge: ForgeOf
) -> None:
    graph = judged(SOCIAL, [person("hub"), person("p0"), person("p1")])
    tying, dropping, adding = racers(graph, peers, 3)

    with proving("PUB-18", "LOD-10"):
        for number in range(ROUNDS):
            calls = race(
                once(tying, insert_edge("Knows", "hub", "p1", id=f"k{number}")),
                lambda: [overwrite(dropping, person("hub"), person("p0"))],
                once(adding, insert("Person", name=f"new {number}")),
            )
            replay(graph, calls, kinds=("conflict", "bad_request"))
            graph.mutate(delete("Person", where("name", "p1")))
            graph.mutate(insert("Person", name="p1"))
        assert_sound(graph, forge(graph.uri), EVERY_TABLE)


@pytest.mark.requirement("VAL-11", "VAL-06")
def test_rules_over_several_rows_hold_whoever_writes_them(judged: Judged, peers: Peers) -> None:
    graph = judged(SOCIAL, [*PEOPLE, *(node("Company", name=name) for name in "bcd")])
    handles = racers(graph, peers, 3)

    with proving("VAL-11"):
        edges = [insert_edge("WorksAt", "ann", name, id=name) for name in "bcd"]
        replay(graph, one_each(handles, edges), kinds=("conflict", "bad_request"))
        assert sum(row["src"] == "ann" for row in graph.handle.read("edge:WorksAt")) <= 2
    with proving("VAL-06"):
        twins = [insert("Person", name=f"twin {n}", email="same@x") for n in range(3)]
        replay(graph, one_each(handles, twins), kinds=("conflict", "bad_request"))


@pytest.mark.requirement("PUB-18", "MUT-08")
def test_inserts_of_one_key_end_as_one_row(judged: Judged, peers: Peers) -> None:
    graph = judged(SOCIAL, PEOPLE)
    handles = racers(graph, peers, 3)

    with proving("PUB-18", "MUT-08"):
        for key in ("new", "ann"):
            calls = one_each(handles, [insert("Person", name=key, age=n) for n in range(3)])
            replay(graph, calls)
            assert any(call.commit is not None for call in calls), "at least one of them gets through"
            assert sum(row["id"] == key for row in graph.handle.read("node:Person")) == 1


# -- everybody at once -------------------------------------------------------------------------------------------------


@pytest.mark.requirement("PUB-20", "PUB-21", "PUB-22", "PUB-23")
@pytest.mark.parametrize(
    "reopening",
    [pytest.param(False, marks=pytest.mark.long, id="one open"), pytest.param(True, id="an open before every write")],
)
def test_many_writers_lose_nothing_and_leave_every_table_writable(
    judged: Judged, peers: Peers, forge: ForgeOf, reopening: bool
) -> None:
    """Whoever opens meets writes that are under way: it may not undo them, nor do them twice."""
    graph = judged(SOCIAL, PEOPLE)
    handles = racers(graph, peers, 3)

    def writes(handle: Handle, writer: int) -> list[Call]:
        calls = []
        for number in range(ROUNDS):
            name = f"w{writer} {number}"
            if reopening:
                handle = handle.engine.open(graph.uri)
            calls.append(mutation(handle, insert("Person", name=name), insert_edge("Knows", name, "ann", id=name)))
        return calls

    calls = race(*(lambda handle=handle, n=n: writes(handle, n) for n, handle in enumerate(handles)))

    with proving("PUB-20", "PUB-21", "PUB-22", "PUB-23"):
        replay(graph, calls)
        for call in calls:
            name = call.statements[0]["data"]["name"]
            if call.commit is None:
                assert graph.handle.row("node:Person", name) is None, f"{name} is there after {call.error}"
            else:
                point = call.commit["graph_commit_id"]
                assert graph.handle.row("node:Person", name, commit=point), "its commit holds its rows"
        assert_sound(graph, forge(graph.uri), EVERY_TABLE)


@pytest.mark.requirement("PUB-01", "PUB-23")
def test_a_reader_never_sees_half_of_a_commit(judged: Judged, peers: Peers) -> None:
    graph = judged(SOCIAL)
    writer, reader = racers(graph, peers, 2)
    done = threading.Event()
    torn: list[tuple[int, int]] = []

    def write() -> list[Call]:
        try:
            return [mutation(writer, insert("Person", name=str(n)), insert("Company", name=str(n))) for n in range(6)]
        finally:
            done.set()

    def read() -> list[Call]:
        while not done.is_set():
            rows = reader.export().splitlines()
            people = sum(row.startswith('{"type":"Person"') for row in rows)
            if people * 2 != len(rows):
                torn.append((people, len(rows) - people))
        return []

    calls = race(write, read)

    with proving("PUB-01"):
        assert torn == [], f"a reader saw so many people and companies: {torn}"
    with proving("PUB-23"):
        replay(graph, calls)


@pytest.mark.requirement("MAN-06")
def test_every_version_has_one_row_per_object_id_whoever_writes(judged: Judged, peers: Peers, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, [person("ann"), node("Company", name="acme")])

    def writes(handle: Handle, number: int) -> list[Call]:
        # One of them writes another table: both meet in the head row alone.
        table = "Company" if number == 2 else "Person"
        return [mutation(handle, insert(table, name=f"{number}-{turn}")) for turn in range(ROUNDS)]

    handles = racers(graph, peers, 3)
    calls = race(*(lambda handle=handle, n=n: writes(handle, n) for n, handle in enumerate(handles)))

    with proving("MAN-06"):
        errors = [call.error for call in calls if call.error is not None]
        assert [error for error in errors if error.kind not in ("conflict", "outcome_pending")] == []
        manifest = forge(graph.uri).manifest()
        for version in (int(each["version"]) for each in manifest.versions()):
            ids = manifest.checkout_version(version).to_table(columns=["object_id"])["object_id"].to_pylist()
            assert len(ids) == len(set(ids)), f"version {version} has two rows of one object id"
    fresh = graph.engine.open(graph.uri)
    found = {row["id"] for key in ("node:Person", "node:Company") for row in fresh.read(key)}
    with proving("MAN-06"):
        written = {call.statements[0]["data"]["name"] for call in calls if call.commit is not None}
        assert written <= found, "an acknowledged write is lost"


@pytest.mark.requirement("PUB-17", "BRA-01")
def test_the_first_commit_of_a_branch_says_where_it_landed_even_beside_a_compaction(
    judged: Judged, peers: Peers, forge: ForgeOf
) -> None:
    """It only adds rows, so that Lance would let it pass over a compaction to a later version than its row says."""
    graph = judged(SOCIAL, PEOPLE)
    graph.mutate(insert("Person", name="dan"))
    disk = forge(graph.uri)
    handle = peers().open(graph.uri)
    names = [f"feat/{n}" for n in range(ROUNDS)]
    for name in names:
        graph.branch_create(name)

    for name in names:

        def write(name: str = name) -> list[Call]:
            handle.mutate(insert("Person", name=name), branch=name)
            return []

        def compact(name: str = name) -> list[Call]:
            with suppress(OSError):  # If the publish is faster, Lance refuses the compaction.
                disk.manifest(name).optimize.compact_files()
            return []

        race(write, compact)

    with proving("PUB-17", "BRA-01"):
        for name in names:
            columns = ["table_version", "_row_created_at_version"]
            rows = disk.manifest(name).to_table(columns=columns, filter="object_type = 'graph_commit'").to_pylist()
            assert all(row["table_version"] == row["_row_created_at_version"] for row in rows), f"{name}: {rows}"
            commit = handle.commits(name)[-1]["graph_commit_id"]
            assert handle.row("node:Person", name, commit=commit), f"the commit of {name} holds its rows"


@pytest.mark.requirement("PUB-05", "PUB-08")
def test_an_index_on_the_rows_of_the_manifest_does_not_blind_its_writers(
    judged: Judged, peers: Peers, forge: ForgeOf
) -> None:
    """With an index in use Lance would not see that two publishes change one row."""
    graph = judged(SOCIAL, PEOPLE)
    disk = forge(graph.uri)
    disk.manifest().create_scalar_index("object_id", "BTREE")
    graph.reopen()
    handles = racers(graph, peers, 3)

    with proving("PUB-05", "PUB-08"):
        for number in range(2):
            name = f"new {number}"
            nodes = insert("Person", name=name), insert("Company", name=name)
            replay(graph, one_each(handles, [*nodes, insert_edge("Knows", "ann", "bob", id=name)]))
        rows = [row["object_id"] for row in disk.rows()]
        assert len(rows) == len(set(rows)), "one row of each id"
