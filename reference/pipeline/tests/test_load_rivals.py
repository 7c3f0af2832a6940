"""A load beside other writers, retries, crashes and clean-ups: nothing is lost, nothing doubled, nothing left."""

from __future__ import annotations

import base64
import datetime
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from failpoints.registry import armed
from reference.errors import BadRequest, Conflict, NotFound, OutcomePending, StorageError
from reference.format.names import table_path
from reference.graph import Graph
from reference.pipeline import inputs, load_commit, staging
from reference.pipeline import load as load_module
from reference.pipeline.load import pipeline_load
from reference.pipeline.orphans import clean_before
from reference.pipeline.scan import PieceItem, scan_piece
from reference.pipeline.staging import JOB_NOTE, NOTES_DIR, announce, refuse_if_forgotten, settle
from reference.pipeline.tests.in_process import KeyedScan, in_process
from reference.pipeline.tests.load_words import (
    assert_sound,
    data_files,
    graph,
    knows,
    person,
    referenced_files,
    rows,
    written,
)
from reference.protocol import commit as commit_module
from reference.protocol.sidecars import Sidecars
from reference.storage.objects import TextObjects

__all__ = ["graph", "in_process"]


def meanwhile(monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> None:
    """Do something once, between the checks of a load and its commit."""
    real = load_module._Load._commit
    left = [action]

    def commit(self: Any, snapshot: Any, verdict: Any) -> Any:
        while left:
            left.pop()()
        return real(self, snapshot, verdict)

    monkeypatch.setattr(load_module._Load, "_commit", commit)


@pytest.mark.requirement("PUB-18")
@pytest.mark.parametrize(
    ("mode", "rival", "code"),
    [
        ("append", person("zoe"), None),
        ("merge", person("ann", age=7), None),
        ("append", person("ann"), "row_exists"),
        ("append", person("zoe", email="a@x"), "unique_violation"),
        ("overwrite", person("zoe"), "expected_version_mismatch"),
    ],
    ids=["other rows", "the same row", "the same id", "the same email", "overwrite"],
)
def test_a_rival_that_publishes_meanwhile_is_seen(
    graph: Graph, tmp_path: Path, in_process: Any, monkeypatch: pytest.MonkeyPatch, mode: Any, rival: Any, code: Any
) -> None:
    other = Graph.open(graph.store.root.uri)
    meanwhile(monkeypatch, lambda: other.load(json.dumps(rival), mode="merge"))
    source = written(tmp_path / "input.jsonl", person("ann", email="a@x"), person("bob"), knows("ann", "bob"))
    if code is None:
        pipeline_load(graph, source, mode=mode, spark=in_process)
        assert {"ann", "bob", rival["data"]["name"]} == set(rows(graph))
        assert [row["email"] for row in graph.read("node:Person")][0] == "a@x"
    else:
        with pytest.raises((BadRequest, Conflict)) as refused:
            pipeline_load(graph, source, mode=mode, spark=in_process)
        assert refused.value.code == code and rows(graph) == [rival["data"]["name"]]
    assert_sound(graph)
    assert data_files(graph) == referenced_files(graph)


@pytest.mark.requirement("SNP-08", "BRA-10")
def test_a_branch_that_is_made_anew_meanwhile_gets_files_that_are_there(
    graph: Graph, tmp_path: Path, in_process: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph.branch_create("work")
    other = Graph.open(graph.store.root.uri)

    def replace_branch() -> None:
        other.branch_delete("work")
        other.branch_create("work")
        other.load(json.dumps(person("zoe")), mode="append", branch="work")

    meanwhile(monkeypatch, replace_branch)
    source = written(tmp_path / "input.jsonl", person("ann"))
    pipeline_load(graph, source, mode="append", branch="work", spark=in_process)
    assert rows(graph, branch="work") == ["ann", "zoe"]
    assert_sound(graph)


@pytest.mark.requirement("VAL-09")
def test_a_node_that_a_rival_removes_meanwhile_is_missed(
    graph: Graph, tmp_path: Path, in_process: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph.load("\n".join(map(json.dumps, [person("ann"), person("bob")])), mode="append")
    other = Graph.open(graph.store.root.uri)
    gone = {"op": "delete", "type": "Person", "where": {"property": "name", "op": "eq", "value": "bob"}}
    meanwhile(monkeypatch, lambda: other.mutate([gone]))
    with pytest.raises(BadRequest) as refused:
        pipeline_load(graph, written(tmp_path / "in.jsonl", knows("ann", "bob")), mode="append", spark=in_process)
    assert refused.value.code == "orphan_edge" and rows(graph, "edge:Knows") == []


def test_the_files_of_losing_attempts_are_removed(
    graph: Graph, tmp_path: Path, in_process: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan = KeyedScan

    def scan_twice(spark: Any, items: Any, *rest: Any) -> Any:
        """Each task has a speculative copy: it writes, and its result is lost."""
        for item in items:
            if isinstance(item, PieceItem):
                list(scan_piece(item))
        return scan(spark, items, *rest)

    monkeypatch.setattr(load_module, "KeyedScan", scan_twice)
    source = written(tmp_path / "input.jsonl", person("ann"), person("bob"), knows("ann", "bob"))
    report = pipeline_load(graph, source, mode="append", spark=in_process)
    assert report.files_removed == 2 and rows(graph) == ["ann", "bob"]
    assert data_files(graph) == referenced_files(graph)


@pytest.mark.requirement("PUB-21", "REC-02")
def test_files_of_a_commit_that_is_pending_are_kept(graph: Graph, tmp_path: Path, in_process: Any) -> None:
    source = written(tmp_path / "input.jsonl", person("ann"), person("bob"))
    with armed("graph_publish.before_commit_append", "error"), pytest.raises(OutcomePending):
        pipeline_load(graph, source, mode="append", spark=in_process)
    recovered = Graph.open(graph.store.root.uri)
    assert rows(recovered) == ["ann", "bob"], "recovery rolls it forward, which needs its files"
    assert_sound(recovered)


def test_what_a_killed_driver_leaves_is_cleaned_up_once_it_is_old(
    graph: Graph, tmp_path: Path, in_process: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph.load(json.dumps(person("ann")), mode="append")
    kept = data_files(graph)

    class Killed(BaseException):
        pass

    def die(*_: Any) -> None:
        raise Killed

    monkeypatch.setattr(load_module._Load, "_commit", die)
    with pytest.raises(Killed):
        pipeline_load(graph, written(tmp_path / "in.jsonl", person("bob")), mode="append", spark=in_process)
    left = data_files(graph)
    assert len(left) == len(kept) + 1
    now = datetime.datetime.now(datetime.UTC)
    clean_before(graph.store, now - datetime.timedelta(hours=1), confirm=True)
    assert data_files(graph) == left, "a file that is young may be that of a live writer"
    preview = clean_before(graph.store, now + datetime.timedelta(seconds=5), confirm=False)
    assert sum(each.files for each in preview) == 1 and data_files(graph) == left
    clean_before(graph.store, now + datetime.timedelta(seconds=5), confirm=True)
    assert data_files(graph) == kept and not list(tmp_path.rglob(NOTES_DIR))
    assert_sound(graph)


def test_a_load_that_was_taken_for_dead_does_not_commit_files_that_are_gone(
    graph: Graph, tmp_path: Path, in_process: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=1)
    meanwhile(monkeypatch, lambda: clean_before(graph.store, soon, confirm=True))
    with pytest.raises(Conflict) as refused:
        pipeline_load(graph, written(tmp_path / "in.jsonl", person("bob")), mode="append", spark=in_process)
    assert refused.value.code == "staged_files_removed" and rows(graph) == []


SOON = datetime.timedelta(minutes=1)


def clean_all(graph: Graph) -> None:
    """A clean-up for which even what is written at this moment is old."""
    clean_before(graph.store, datetime.datetime.now(datetime.UTC) + SOON, confirm=True)


@pytest.mark.requirement("REC-02")
def test_a_load_that_a_clean_up_overtakes_before_it_is_armed_is_refused(
    graph: Graph, tmp_path: Path, in_process: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = graph.snapshot()
    real: Callable[..., Any] = commit_module.commit_graph

    def commit_graph(*arguments: Any) -> Any:
        clean_all(graph)
        return real(*arguments)

    monkeypatch.setattr(load_commit, "commit_graph", commit_graph)
    with pytest.raises(Conflict) as refused:
        pipeline_load(graph, written(tmp_path / "in.jsonl", person("bob")), mode="append", spark=in_process)
    assert refused.value.code == "staged_files_removed" and rows(graph) == []
    head = graph.store.tables.open_latest(table_path("node:Person"), None).version
    assert head == before.entry("node:Person").version, "nothing has moved, so nothing had to be taken back"
    assert_sound(graph)


def test_a_clean_up_beside_a_load_that_is_armed_is_refused_and_leaves_it_alone(
    graph: Graph, tmp_path: Path, in_process: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Sidecars.arm
    refusals: list[Conflict] = []

    def arm(self: Sidecars, *arguments: Any) -> Any:
        armed_one = real(self, *arguments)
        with pytest.raises(Conflict) as refused:
            clean_all(graph)
        refusals.append(refused.value)
        return armed_one

    monkeypatch.setattr(Sidecars, "arm", arm)
    pipeline_load(graph, written(tmp_path / "in.jsonl", person("bob")), mode="append", spark=in_process)
    assert [each.code for each in refusals] == ["sidecar_busy"] and rows(graph) == ["bob"]
    assert data_files(graph) == referenced_files(graph)


def test_a_load_that_was_suspended_while_a_clean_up_ran_takes_its_commits_back(
    graph: Graph, tmp_path: Path, in_process: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = commit_module._move

    def move(*arguments: Any) -> Any:
        """The clean-up that took the sleeping load for dead has removed its note, and will remove its files."""
        for note in tmp_path.rglob(JOB_NOTE):
            note.unlink()
        return real(*arguments)

    monkeypatch.setattr(commit_module, "_move", move)
    with pytest.raises(Conflict) as refused:
        pipeline_load(graph, written(tmp_path / "in.jsonl", person("bob")), mode="append", spark=in_process)
    assert refused.value.code == "staged_files_removed" and rows(graph) == []
    assert_sound(graph)


class Shared(TextObjects):
    """Notes of other loads may be written at any moment, so no listing of them is true for long."""

    def delete_prefix(self, path: str) -> None:
        assert not path.endswith(NOTES_DIR), "another load may have announced itself a moment ago"
        super().delete_prefix(path)


def test_the_end_of_one_load_leaves_the_note_of_another(graph: Graph) -> None:
    objects, path = Shared(graph.store.root), table_path("node:Person")
    mine, other = "01M7NVA0000000000000000000", "01M7NVB0000000000000000000"
    announce(objects, [path], mine)
    settle(objects, [path], mine, ())
    announce(objects, [path], mine)
    announce(objects, [path], other)
    settle(objects, [path], mine, ())
    refuse_if_forgotten(objects, [path], other)
    assert objects.list_dir(f"{path}/{NOTES_DIR}/{mine}") == []


def test_a_load_that_is_published_is_not_failed_by_what_cannot_be_removed(
    graph: Graph, tmp_path: Path, in_process: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> int:
        raise StorageError("the store is gone")

    monkeypatch.setattr(load_module, "settle", fail)
    source = written(tmp_path / "in.jsonl", person("bob"))
    report = pipeline_load(graph, source, mode="append", spark=in_process)
    assert rows(graph) == ["bob"] and report.left_behind == "the store is gone"
    with pytest.raises(BadRequest) as refused:
        pipeline_load(graph, source, mode="append", spark=in_process)
    assert refused.value.code == "row_exists", (
        "what is wrong with the records comes before what is wrong with the store"
    )


def blob_files(graph: Graph) -> list[Path]:
    return list(Path(graph.store.root.path).rglob("*.blob"))


def test_large_blobs_go_with_the_files_that_they_belong_to(
    tmp_path: Path, in_process: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "PIECE_BYTES", 32 * 2**20)
    graph = Graph.init(str(tmp_path / "graph"), "node Photo { name: String @key  content: Blob?  size: I32? }")
    content = f"base64:{base64.b64encode(bytes(6 << 20)).decode()}"
    good, bad = ({"type": "Photo", "data": {"name": name, "content": content}} for name in ("good", "bad"))
    wrong = {"type": "Photo", "data": {"name": "wrong", "size": "large"}}
    with pytest.raises(BadRequest):
        pipeline_load(graph, written(tmp_path / "bad.jsonl", bad, wrong), mode="append", spark=in_process)
    assert blob_files(graph) == []
    pipeline_load(graph, written(tmp_path / "good.jsonl", good), mode="append", spark=in_process)
    kept = blob_files(graph)
    orphan = kept[0].parent.parent / "orphan" / "1.blob"
    orphan.parent.mkdir()
    orphan.write_bytes(b"left by an attempt that was killed")
    clean_all(graph)
    assert blob_files(graph) == kept and not orphan.parent.exists()
    assert graph.read("node:Photo")[0]["content"] == content


def test_a_version_that_a_rival_has_cleaned_up_is_a_conflict_and_not_the_end(
    graph: Graph, tmp_path: Path, in_process: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Graph.open(graph.store.root.uri)
    real: Callable[..., Any] = staging.stage
    left = [True]

    def stage(*arguments: Any) -> Any:
        if left:
            left.clear()
            other.load(json.dumps(person("zoe")), mode="append")
            raise NotFound("version 1 is not there", code="version_not_found")
        return real(*arguments)

    monkeypatch.setattr(load_commit, "stage", stage)
    pipeline_load(graph, written(tmp_path / "in.jsonl", person("bob")), mode="append", spark=in_process)
    assert rows(graph) == ["bob", "zoe"]
