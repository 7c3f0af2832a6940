"""Writers in several processes on one graph, on local disk and on S3.

The public engine, in the same races, acknowledges one call in five and leaves a table that nobody can write again:
each opener's recovery rolls back whatever live writer it meets. Here every call is acknowledged or refused with a
typed conflict, no acknowledged row is lost, and every table can be written afterwards.
"""

from __future__ import annotations

import lance
import pytest

from fixtures.stores import EmptyRoot
from reference.graph import Graph
from reference.tests.graphs import city, knows, names, new_graph, person, reopened
from reference.tests.worker import race

EIGHT_TYPES = "".join(f"node T{number} {{ name: String @key }}\n" for number in range(8))


def assert_commits(graph: Graph, expected: int) -> None:
    """One commit for each acknowledged write. Only a recovery, of a writer too slow for its lease, may add to that."""
    assert len(graph.commits()) == expected or (graph.recoveries() and len(graph.commits()) > expected)


def assert_sound(graph: Graph) -> None:
    """One linear chain, every commit row at the version it says, pins equal to HEADs, and every table writable."""
    commits = graph.commits()
    assert [commit.parent_commit_id for commit in commits[1:]] == [commit.graph_commit_id for commit in commits[:-1]]
    rows = graph.store.tables.open_latest("__manifest", None).to_table(
        columns=["table_version", "_row_created_at_version"], filter="object_type = 'graph_commit'"
    )
    assert all(row["table_version"] == row["_row_created_at_version"] for row in rows.to_pylist())
    assert graph.store.sidecars.operation_ids() == []
    for entry in graph.snapshot().entries.values():
        assert graph.store.tables.open_latest(entry.path, entry.branch).version == entry.version


@pytest.mark.requirement("PUB-08", "PUB-20", "PUB-21", "LIN-06")
def test_eight_writers_on_disjoint_tables_end_in_one_chain_of_eight(graph_root: EmptyRoot) -> None:
    graph = new_graph(graph_root, EIGHT_TYPES)
    calls = [[[{"op": "insert", "type": f"T{number}", "data": {"name": "x"}}]] for number in range(8)]
    outcomes = race(graph_root.uri, graph_root.env, calls)
    assert [found.kind for worker in outcomes for found in worker] == ["ok"] * 8
    again = reopened(graph)
    assert_commits(again, 1 + 8)
    assert [len(names(again, f"node:T{number}")) for number in range(8)] == [1] * 8
    assert_sound(again)


@pytest.mark.requirement("PUB-20", "PUB-21", "PUB-22", "REC-25")
@pytest.mark.parametrize(
    "reopen",
    [
        pytest.param(False, id="one handle each"),
        pytest.param(True, id="an open before every write", marks=pytest.mark.slow),
    ],
)
def test_six_writers_on_one_table_lose_nothing_and_leave_it_writable(graph_root: EmptyRoot, reopen: bool) -> None:
    graph = new_graph(graph_root)
    calls = [[[person(f"w{worker}-{call}")] for call in range(5)] for worker in range(6)]
    outcomes = race(graph_root.uri, graph_root.env, calls, reopen=reopen)
    found = [outcome for worker in outcomes for outcome in worker]
    assert {outcome.kind for outcome in found} <= {"ok", "conflict"}
    acknowledged = {
        f"w{worker}-{call}" for worker in range(6) for call in range(5) if outcomes[worker][call].kind == "ok"
    }
    assert len(acknowledged) >= 10, "so few that nothing was shown"  # How many, the machine decides.
    again = reopened(graph)
    assert set(names(again)) == acknowledged
    assert_sound(again)
    for table_key in sorted(again.snapshot().entries, reverse=True):  # Nodes before the edges between them.
        again.mutate(_write_to(table_key, sorted(acknowledged)))


def _write_to(table_key: str, people: list[str]) -> list[dict[str, object]]:
    return {
        "node:Person": [person("after")],
        "node:City": [city("after")],
        "edge:Knows": [knows(people[0], people[1])],
        "edge:LivesIn": [{"op": "insert", "edge": "LivesIn", "from": people[0], "to": "after"}],
    }[table_key]


@pytest.mark.requirement("VAL-09", "PUB-21", "DEL-02")
def test_no_edge_is_added_to_a_node_that_another_process_removes(graph_root: EmptyRoot) -> None:
    graph = new_graph(graph_root)
    graph.mutate([person("hub"), *[person(f"p{number}") for number in range(8)]])
    remove = {"op": "delete", "type": "Person", "where": {"property": "name", "op": "eq", "value": "hub"}}
    calls = [[[knows(f"p{worker}", "hub")], [knows("hub", f"p{worker}")]] for worker in range(3)]
    outcomes = race(graph_root.uri, graph_root.env, [*calls, [[remove]] * 3])
    assert {found.kind for worker in outcomes for found in worker} <= {"ok", "conflict", "bad_request"}
    again = reopened(graph)
    people = set(names(again))
    edges = again.read("edge:Knows")
    assert all({edge["src"], edge["dst"]} <= people for edge in edges)
    assert_sound(again)


@pytest.mark.requirement("PUB-18", "PUB-20", "MUT-11")
def test_racing_updates_of_one_row_are_serial_or_refused(graph_root: EmptyRoot) -> None:
    graph = new_graph(graph_root)
    graph.mutate([person("ann", 0)])
    where = {"property": "name", "op": "eq", "value": "ann"}
    calls = [
        [[{"op": "update", "type": "Person", "where": where, "set": {"age": 10 * worker + call}}] for call in range(2)]
        for worker in range(1, 5)
    ]
    outcomes = race(graph_root.uri, graph_root.env, calls)
    assert {found.kind for worker in outcomes for found in worker} <= {"ok", "conflict"}
    again = reopened(graph)
    acknowledged = sum(found.kind == "ok" for worker in outcomes for found in worker)
    assert acknowledged >= 1
    assert_commits(again, 2 + acknowledged)
    assert again.read("node:Person")[0]["age"] in {10 * worker + call for worker in range(1, 5) for call in range(2)}
    assert_sound(again)


@pytest.mark.requirement("SCH-16", "STO-03")
def test_of_several_inits_of_one_root_one_succeeds(tmp_path_factory: pytest.TempPathFactory) -> None:
    from concurrent.futures import ThreadPoolExecutor

    from reference.errors import Conflict

    def attempt(_: int) -> str:
        try:
            new_graph(root)
        except Conflict as refused:
            return refused.code
        return "ok"

    for _ in range(5):
        root = tmp_path_factory.mktemp("race") / "graph"
        with ThreadPoolExecutor(6) as pool:
            found = list(pool.map(attempt, range(6)))
        assert sorted(found) == ["already_initialized"] * 5 + ["ok"]
        assert lance.dataset(str(root / "__manifest")).version == 3
        assert Graph.open(str(root)).snapshot().version == 3
