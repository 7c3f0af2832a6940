"""A sound graph is called sound, whoever wrote it, wherever it lies, and whatever it has been through."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conformance.audit import audit
from conformance.audit.pins import Pins
from conformance.audit.places import Listing, S3Objects, parse_root
from conformance.audit.tests.forge import Forgery
from fixtures import golden
from fixtures.stores import EmptyRoot
from fixtures.stores.moto import MotoStore
from reference.graph import Graph

SCHEMAS = Path(golden.__file__).parents[1] / "schemas"
RECORDS = SCHEMAS.parent / "records"
# What each crashed graph of the public engine is waiting for.
CRASHED = {
    "crashed-load": {"sidecar-pending", "drift-covered"},
    "crashed-mutation-half": {"sidecar-pending", "drift-covered"},
    "crashed-merge-confirmed": {"sidecar-pending", "drift-covered"},
    "crashed-schema": {"sidecar-pending", "drift-covered", "schema-lock"},
    "unacknowledged-publish": {"sidecar-pending"},
}


def person(handle: str, **values: Any) -> list[dict[str, Any]]:
    return [{"op": "insert", "type": "Person", "data": {"handle": handle, "name": handle, **values}}]


def files(root: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in root.rglob("*")}


@pytest.mark.requirement("LAY-04", "MAN-11", "LIN-02")
def test_main_of_a_golden_graph_is_sound_in_a_directory(tmp_path: Path) -> None:
    report = audit(str(golden.unpack("social", tmp_path)))
    assert {(each.code, each.severity) for each in report.findings} == {("branch-moved", "note")}
    assert report.checked["commits"] == len(golden.expect("social")["commits"]["main"])


@pytest.mark.requirement("REC-01", "SCH-01", "LAY-09")
@pytest.mark.parametrize("name", CRASHED)
def test_a_crashed_golden_graph_waits_for_recovery(name: str, tmp_path: Path) -> None:
    golden.unpack(name, tmp_path)
    report = audit(str(golden.localize(tmp_path)))
    assert report.ok
    assert {each.code for each in report.of("warning")} == CRASHED[name]


@pytest.mark.s3
@pytest.mark.requirement("LAY-05", "LAY-12", "STO-02", "STO-06")
@pytest.mark.parametrize("name", ["social", *CRASHED])
def test_every_branch_of_a_golden_graph_is_sound_where_it_was_written(name: str, moto_store: MotoStore) -> None:
    moto_store.create_bucket(golden.BUCKET)
    golden.upload(name, moto_store.objects(golden.BUCKET))
    report = audit(f"s3://{golden.BUCKET}/{name}", moto_store.env)
    assert {each.code for each in report.findings} == CRASHED.get(name, set())
    assert report.checked["branches"] == len(golden.expect(name)["branches"])


@pytest.mark.s3
@pytest.mark.requirement("LAY-01", "LAY-02", "BRA-02", "REC-14")
@pytest.mark.parametrize("is_empty", [True, False])
def test_a_folder_in_which_nothing_is_left_is_nobodys_fault_though_a_store_lists_it(
    moto_store: MotoStore, monkeypatch: pytest.MonkeyPatch, is_empty: bool
) -> None:
    """SeaweedFS goes on listing a folder after its last object is gone: a graph that was put back had a table of
    recoveries for the auditor, which nobody could read."""
    root = moto_store.fresh_root()
    Graph.init(root, (SCHEMAS / "social.pg").read_text(), env=moto_store.env)
    right = S3Objects.children
    table = parse_root(root, moto_store.env).objects().children("nodes").dirs[0]
    ghosts = {
        "": "_graph_commit_recoveries.lance",
        "nodes": "0123456789abcdef",
        f"nodes/{table}/tree": "gone",
        f"nodes/{table}/tree/gone": "_versions",
        "__recovery": "folder",
    }

    def children(self: S3Objects, path: str) -> Listing:
        found = right(self, path)
        return replace(found, dirs=(*found.dirs, *([ghosts[path]] if path in ghosts else [])))

    monkeypatch.setattr(S3Objects, "children", children)
    if not is_empty:
        monkeypatch.setattr(S3Objects, "holds", lambda self, path: True)
    codes = {each.code for each in audit(root, moto_store.env).findings}
    assert codes == (set() if is_empty else {"recovery-table", "unreferenced-table", "branch-residue", "unknown-file"})


@pytest.mark.requirement("BRA-17", "BRA-18", "CLN-07", "MRG-12", "OPT-07", "LAY-06", "LAY-13")
def test_a_graph_with_a_rich_history_is_sound_after_every_step(graph_root: EmptyRoot) -> None:
    graph = Graph.init(graph_root.uri, (SCHEMAS / "social.pg").read_text(), env=graph_root.env)
    steps: list[Any] = [
        lambda: graph.load((RECORDS / "social.jsonl").read_text(), mode="merge", actor="ann"),
        lambda: graph.schema_apply((SCHEMAS / "social_evolved.pg").read_text()),
        lambda: graph.branch_create("feature"),
        lambda: graph.mutate(person("zoe", age=40), branch="feature"),
        lambda: graph.branch_create("feature/deeper", "feature"),
        lambda: graph.mutate(person("yan", age=41), branch="feature/deeper"),
        lambda: graph.mutate(person("xia"), actor="bea"),
        lambda: graph.merge("main", "feature/deeper"),
        lambda: graph.merge("feature/deeper", "main"),
        lambda: graph.optimize(),
        lambda: graph.ensure_indices("feature"),
        lambda: graph.mutate([{"op": "delete", "type": "Person", "where": _is("xia")}], branch="feature/deeper"),
        lambda: graph.cleanup(keep_versions=1, confirm=True),
        lambda: graph.merge("feature/deeper", "main"),
        lambda: graph.branch_delete("feature/deeper"),
        lambda: graph.cleanup(keep_versions=1, confirm=True),
    ]
    if graph_root.env:
        del steps[9:], steps[1]  # What a server adds are addresses: branches and merges will do.
    for number, step in enumerate(steps):
        step()
        report = audit(graph_root.uri, graph_root.env)
        found = [each for each in report.findings if each.code != "merged-parent-unknown"]
        assert found == [], f"after step {number}: {found}"
    assert report.checked["branches"] == (3 if graph_root.env else 2)


def _is(handle: str) -> dict[str, Any]:
    return {"property": "handle", "op": "eq", "value": handle}


@pytest.mark.requirement("VAL-14", "VAL-16", "SCH-14")
def test_every_feature_of_the_schema_language_is_understood(tmp_path: Path) -> None:
    graph = Graph.init(str(tmp_path / "graph"), (SCHEMAS / "everything.pg").read_text())
    graph.load((RECORDS / "everything.jsonl").read_text(), mode="merge")
    report = audit(str(tmp_path / "graph"))
    assert report.findings == ()
    assert report.checked["rows"] == len((RECORDS / "everything.jsonl").read_text().splitlines())


@pytest.mark.requirement("SNP-09")
def test_an_audit_writes_nothing(branched: Forgery) -> None:
    before = files(branched.path)
    branched.audit()
    assert files(branched.path) == before


@pytest.mark.s3
@pytest.mark.requirement("SNP-09")
def test_an_audit_of_a_bucket_only_reads_and_reads_each_table_once(moto_store: MotoStore) -> None:
    root = moto_store.fresh_root()
    graph = Graph.init(root, (SCHEMAS / "social.pg").read_text(), env=moto_store.env)
    graph.load((RECORDS / "social.jsonl").read_text(), mode="merge")
    for name in ("one", "two", "three"):
        graph.branch_create(name)
    moto_store.take_requests()
    alone = _data_requests(moto_store, root)
    for name in ("four", "five", "six"):
        graph.branch_create(name)
    moto_store.take_requests()
    assert _data_requests(moto_store, root) == alone, "branches that share their tables cost no reads of table data"


def _data_requests(store: MotoStore, root: str) -> int:
    """Audit, and count the reads of table data."""
    assert audit(root, store.env).findings == ()
    requests = store.take_requests()
    assert {request.verb for request in requests} <= {"GET", "LIST", "HEAD"}
    return sum("/__manifest/" not in request.path and "/data/" in request.path for request in requests)


@pytest.mark.requirement("SNP-01", "PUB-21")
def test_a_writer_that_publishes_during_the_audit_is_not_mistaken_for_drift(
    forgery: Forgery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifest is read, then a writer comes and goes, then the HEADs are read: the audit has to look again."""
    graph, open_pins, writes = forgery.graph(), Pins.open, iter(range(1))

    def write_first(pins: Pins, manifest: Any) -> None:
        for _ in writes:
            graph.mutate([{"op": "insert", "type": "Person", "data": {"handle": "late"}}])
        open_pins(pins, manifest)

    monkeypatch.setattr(Pins, "open", write_first)
    assert forgery.audit().findings == ()


@pytest.mark.requirement("SNP-01")
def test_a_graph_that_never_rests_is_reported_with_a_note(forgery: Forgery, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, open_pins, handles = forgery.graph(), Pins.open, iter(["da", "db", "dc", "dd"])

    def write_first(pins: Pins, manifest: Any) -> None:
        graph.mutate([{"op": "insert", "type": "Person", "data": {"handle": next(handles)}}])
        open_pins(pins, manifest)

    monkeypatch.setattr(Pins, "open", write_first)
    assert {each.code for each in forgery.audit().findings} == {"drift-uncovered", "graph-moved"}


@pytest.mark.requirement("REC-05", "REC-14")
def test_a_recovered_graph_is_sound(tmp_path: Path) -> None:
    golden.unpack("crashed-load", tmp_path)
    graph = golden.localize(tmp_path)
    Graph.open(str(graph))
    report = audit(str(graph))
    assert report.findings == ()
    assert report.checked["recoveries"] == 1
    assert json.loads(json.dumps(report.to_json()))["ok"] is True


@pytest.mark.requirement("VAL-14")
def test_a_key_of_any_scalar_type_is_the_text_of_its_id(tmp_path: Path) -> None:
    types = ("Bool", "I64", "U64", "F32", "F64", "Date", "DateTime")
    values = (True, -(2**63), 2**64 - 1, 0.1, 1e16, "1969-12-31", "1969-12-31T23:59:59.678")
    schema = "\n".join(f"node By{name} {{ key: {name} @key }}" for name in types)
    records = [{"type": f"By{name}", "data": {"key": value}} for name, value in zip(types, values, strict=True)]
    graph = Graph.init(str(tmp_path / "graph"), schema + "\nnode Both {\n  a: DateTime\n  b: Date\n  @key(a, b)\n}")
    records.append({"type": "Both", "data": {"a": "2026-01-02T03:04:05", "b": "2026-01-02"}})

    graph.load("\n".join(map(json.dumps, records)), mode="merge")

    assert audit(str(tmp_path / "graph")).findings == ()
