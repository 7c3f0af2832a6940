"""Requests that the reference engine sends to S3, counted at the server.

What production cannot afford is a cost that grows with history. So every count here is taken at several depths, and the
same ceiling holds at all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

import pytest

from fixtures.stores.moto import MotoStore, Request
from reference.graph import Graph

SCHEMA = """
node Person {
  name: String @key
  age: I32?
}
edge Knows: Person -> Person
"""


def person(name: str) -> dict[str, object]:
    return {"op": "insert", "type": "Person", "data": {"name": name, "age": 1}}


def counted(store: MotoStore, action: Callable[[], object]) -> list[Request]:
    """The requests of one action."""
    store.take_requests()
    action()
    return store.take_requests()


def shown(requests: list[Request]) -> str:
    lines = [f"{request.verb} {request.path} {request.query}" for request in requests]
    return f"{dict(Counter(request.verb for request in requests))}\n" + "\n".join(lines)


def at_depth(store: MotoStore, depth: int) -> Graph:
    graph = Graph.init(store.fresh_root(), SCHEMA, env=store.env)
    for number in range(depth):
        graph.mutate([person(f"p{number}")])
    return graph


@pytest.mark.s3
@pytest.mark.requirement("COST-02", "COST-03", "COST-05", "COST-07", "COST-08")
@pytest.mark.parametrize("depth", [2, 30])
def test_a_warm_insert_into_an_optimized_graph_costs_the_same_at_every_depth(moto_store: MotoStore, depth: int) -> None:
    graph = at_depth(moto_store, depth)
    graph.optimize()
    graph.mutate([person("warm")])
    graph.optimize()
    requests = counted(moto_store, lambda: graph.mutate([person("measured")]))
    assert len(requests) <= 26, shown(requests)
    assert sum(request.verb == "LIST" for request in requests) <= 6, shown(requests)
    assert not any("/edges/" in request.path for request in requests), shown(requests)


@pytest.mark.s3
@pytest.mark.requirement("COST-02", "COST-03")
@pytest.mark.parametrize("depth", [2, 30])
def test_an_insert_from_a_cold_process_costs_the_same_at_every_depth(moto_store: MotoStore, depth: int) -> None:
    graph = at_depth(moto_store, depth)
    graph.optimize()

    def cold() -> None:
        Graph.open(graph.store.root.uri, env=moto_store.env).mutate([person("measured")])

    requests = counted(moto_store, cold)
    assert len(requests) <= 50, shown(requests)


@pytest.mark.s3
@pytest.mark.requirement("COST-02", "OPT-07")
def test_without_optimize_an_insert_grows_only_by_the_fragments_of_its_table(moto_store: MotoStore) -> None:
    graph = at_depth(moto_store, 0)
    manifest: list[int] = []
    table: list[int] = []
    for number in range(40):
        requests = counted(moto_store, partial(graph.mutate, [person(f"p{number}")]))
        manifest.append(sum("__manifest" in request.path or "__manifest" in request.query for request in requests))
        table.append(len(requests) - manifest[-1])
    usual = sorted(manifest)[: len(manifest) * 3 // 4]
    assert max(usual) <= 20, manifest
    assert max(manifest[20:]) <= max(manifest[:20]) + 2, manifest
    assert all(count <= 16 + 2 * fragments for fragments, count in enumerate(table)), table


@pytest.mark.s3
@pytest.mark.requirement("COST-06", "COST-09")
def test_a_merge_reads_a_fragment_that_both_sides_share_at_most_twice_however_many_rows_it_has(
    moto_store: MotoStore,
) -> None:
    """Fragments of one row are kept where the file says what it holds, and need a request less than others."""
    graph = at_depth(moto_store, 0)
    read: dict[int, int] = {}
    for fragments in (3, 13):
        while len(graph.read("node:Person")) < 3 * fragments + len(read):
            number = len(graph.read("node:Person"))
            graph.mutate([person(f"p{number}-{each}") for each in range(3)])
        branch = f"feat{fragments}"
        graph.branch_create(branch)
        graph.mutate([person(f"new{fragments}")], branch=branch)

        def merge(name: str = branch) -> None:
            Graph.open(graph.store.root.uri, env=moto_store.env).merge(name, "main")

        requests = counted(moto_store, merge)
        read[fragments] = sum("/nodes/" in each.path and "/data/" in each.path for each in requests)
    assert read[13] - read[3] <= 2 * 10 + 2, read


@pytest.mark.s3
@pytest.mark.requirement("COST-01", "SNP-02")
def test_a_repeated_read_probes_once_and_opens_nothing(moto_store: MotoStore) -> None:
    graph = at_depth(moto_store, 5)
    graph.read("node:Person")
    requests = counted(moto_store, lambda: graph.read("node:Person"))
    on_manifest = [request for request in requests if "__manifest" in request.path + request.query]
    assert [request.verb for request in on_manifest] == ["LIST"], shown(requests)
    assert sum(request.path.endswith("_schema.pg") for request in requests) == 1, shown(requests)
    assert not any("_versions" in request.path + request.query for request in requests if request not in on_manifest)


@pytest.mark.s3
@pytest.mark.requirement("COST-01", "SNP-02")
def test_a_stale_read_reads_what_changed_and_not_the_whole_manifest(moto_store: MotoStore) -> None:
    graph = at_depth(moto_store, 12)
    reader = Graph.open(graph.store.root.uri, read_only=True, env=moto_store.env)
    reader.snapshot()
    graph.mutate([person("new")])
    requests = counted(moto_store, reader.snapshot)
    assert len(requests) <= 6, shown(requests)


@pytest.mark.s3
@pytest.mark.requirement("COST-05", "CLN-07")
def test_cleanup_asks_each_branch_once_for_all_tables(moto_store: MotoStore) -> None:
    graph = at_depth(moto_store, 2)
    needed: list[int] = []
    for number in range(6):
        graph.branch_create(f"b{number}")
        graph.mutate([person(f"on-b{number}")], branch=f"b{number}")
        graph.mutate([person(f"m{number}")])
        requests = counted(moto_store, lambda: graph.cleanup(keep_versions=1, confirm=True))
        needed.append(len(requests))
    assert needed[5] - needed[1] <= 4 * 16, needed


@pytest.mark.s3
@pytest.mark.requirement("SNP-09", "STM-05", "REC-21")
def test_a_read_only_open_and_every_read_send_no_write(moto_store: MotoStore) -> None:
    graph = at_depth(moto_store, 3)

    def read() -> None:
        reader = Graph.open(graph.store.root.uri, read_only=True, env=moto_store.env)
        reader.read("node:Person")
        reader.commits()
        b"".join(reader.export())
        reader.refresh()

    assert {request.verb for request in counted(moto_store, read)} <= {"GET", "HEAD", "LIST"}


@pytest.mark.s3
@pytest.mark.requirement("MUT-03")
def test_a_query_that_mixes_inserts_and_deletes_is_refused_before_any_request(moto_store: MotoStore) -> None:
    graph = at_depth(moto_store, 1)
    everyone = {"op": "delete", "type": "Person", "where": {"all": True}}

    def mixed() -> None:
        with pytest.raises(Exception, match="split|separate|delete"):
            graph.mutate([person("x"), everyone])

    assert counted(moto_store, mixed) == []


@pytest.mark.s3
@pytest.mark.requirement("BRA-01")
def test_creating_a_branch_touches_no_table(moto_store: MotoStore) -> None:
    graph = at_depth(moto_store, 3)
    requests = counted(moto_store, lambda: graph.branch_create("feat"))
    assert not any("/nodes/" in request.path + request.query for request in requests), shown(requests)
