"""Interchange: graphs that the public engine wrote, whole and crashed, with the answers it gives about them.

They are put back where they were written, bucket `golden` on an S3 store, because Lance keeps absolute addresses in the
versions of branches. Read from a plain directory, which is to say moved, they give the same answers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures import golden
from fixtures.stores.moto import MotoStore
from reference.graph import Graph

CRASHED = [name for name in golden.names() if name != "social"]


@pytest.fixture(scope="module")
def bucket(moto_store: MotoStore) -> Iterator[MotoStore]:
    moto_store.create_bucket("golden")
    yield moto_store


def upload(store: MotoStore, name: str) -> str:
    golden.upload(name, store.objects("golden"))
    return f"s3://golden/{name}"


@pytest.mark.s3
@pytest.mark.requirement("MAN-09", "LIN-01", "LIN-10", "EXP-01", "EXP-02", "BRA-04", "SNP-09", "STO-06")
def test_the_whole_graph_is_read_as_the_public_engine_reads_it(bucket: MotoStore) -> None:
    graph = Graph.open(upload(bucket, "social"), read_only=True, env=bucket.env)
    expected = golden.expect("social")
    assert graph.branch_list() == expected["branches"]
    for branch in graph.branch_list():
        assert graph.snapshot(branch).to_json() == expected["snapshot"][branch]
        assert [commit.to_json() for commit in graph.commits(branch)] == expected["commits"][branch]
        assert b"".join(graph.export(branch)).decode() == expected["export"][branch]


@pytest.mark.requirement("LAY-04", "EXP-01", "EXP-02", "LIN-10")
@pytest.mark.parametrize("branch", golden.expect("social")["branches"])
def test_every_branch_is_read_from_a_directory_to_which_the_graph_was_moved(tmp_path: Path, branch: str) -> None:
    graph = Graph.open(str(golden.unpack("social", tmp_path)), read_only=True)
    expected = golden.expect("social")
    assert graph.snapshot(branch).to_json() == expected["snapshot"][branch]
    assert [commit.to_json() for commit in graph.commits(branch)] == expected["commits"][branch]
    assert b"".join(graph.export(branch)).decode() == expected["export"][branch]


@pytest.mark.s3
@pytest.mark.requirement("REC-04", "REC-05", "REC-08", "REC-13", "SCH-12", "SCH-17")
@pytest.mark.parametrize("name", CRASHED)
def test_a_crashed_graph_recovers_to_the_same_rows_versions_and_audit(bucket: MotoStore, name: str) -> None:
    graph = Graph.open(upload(bucket, name), env=bucket.env)
    expected = golden.expect(name)
    for branch in graph.branch_list():
        assert b"".join(graph.export(branch)).decode() == expected["export"][branch]
        assert graph.snapshot(branch).to_json() == expected["snapshot"][branch]
        ours, theirs = [c.to_json() for c in graph.commits(branch)], expected["commits"][branch]
        minted = {"graph_commit_id", "created_at"} if branch == "main" else set()
        for one, other in zip(ours, theirs, strict=True):
            recovered = one["actor_id"] == "omnigraph:recovery"
            skipped = minted if recovered else set()
            assert {k: v for k, v in one.items() if k not in skipped} == {
                k: v for k, v in other.items() if k not in skipped
            }
    audit = [
        {**row.to_json(), "graph_commit_id": "", "outcomes": [vars(outcome) for outcome in row.outcomes]}
        for row in graph.recoveries()
    ]
    assert audit == [
        {
            "graph_commit_id": "",
            "recovery_kind": row["recovery_kind"],
            "recovery_for_actor": row["recovery_for_actor"],
            "operation_id": row["operation_id"],
            "sidecar_writer_kind": row["sidecar_writer_kind"],
            "outcomes": json.loads(row["per_table_outcomes_json"]),
        }
        for row in expected["audit"]
    ]
    assert graph.store.sidecars.operation_ids() == []
    assert graph.store.manifests.branch_names() == [b for b in graph.branch_list() if b != "main"]
    assert not graph.store.schema.staging_exists()


@pytest.mark.s3
@pytest.mark.requirement("STO-06", "BRA-17", "IDX-01")
@pytest.mark.parametrize("name", golden.names())
def test_the_reference_goes_on_writing_in_the_public_engines_graphs(bucket: MotoStore, name: str) -> None:
    graph = Graph.open(upload(bucket, name), env=bucket.env)
    for branch in graph.branch_list():
        graph.mutate(
            [
                {"op": "insert", "type": "Person", "data": {"handle": "zoe", "name": "Zoe"}},
                {"op": "insert", "edge": "Knows", "from": "zoe", "to": "alice"},
                {"op": "update", "type": "Company", "where": {"all": True}, "set": {"founded": 7}},
            ],
            branch=branch,
        )
        graph.load('{"type":"Note","data":{"id":"n9","title":"t","body":"base64:AA=="}}', mode="merge", branch=branch)
        gone = {"op": "delete", "type": "Person", "where": {"property": "handle", "op": "eq", "value": "bob"}}
        graph.mutate([gone], branch=branch)
        lines = [json.loads(line) for line in graph.export(branch)]
        people = {line["data"]["id"] for line in lines if line.get("type") == "Person"}
        assert "zoe" in people
        assert "bob" not in people
        assert all({line["from"], line["to"]} <= people for line in lines if line.get("edge") == "Knows")
        assert {line["data"]["founded"] for line in lines if line.get("type") == "Company"} == {7}
        assert next(line for line in lines if line["data"]["id"] == "n9")["data"]["body"] == "base64:AA=="
    again = Graph.open(f"s3://golden/{name}", env=bucket.env)
    assert [again.snapshot(b) for b in again.branch_list()] == [graph.snapshot(b) for b in graph.branch_list()]
