"""Load on Spark: what only it promises, beyond being the engine's load (`test_load_as_the_engine`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reference.errors import BadRequest, StorageError
from reference.graph import Graph
from reference.pipeline.inputs import Place
from reference.pipeline.load import pipeline_load
from reference.pipeline.staging import NOTES_DIR, Workplace
from reference.pipeline.tests.in_process import in_process
from reference.pipeline.tests.load_words import (
    assert_sound,
    data_files,
    graph,
    knows,
    loaded,
    person,
    quarantined,
    referenced_files,
    rows,
    written,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["graph", "in_process"]


def parquet(folder: Path) -> str:
    """Two people, two places and what is between them, one file for each type, and a file that is none of ours."""
    tables = {
        "nodes/Person": pa.table(
            {
                "name": pa.array(["ann", "bob"]),
                "age": pa.array([1, None], pa.int64()),
                "born": pa.array([0, 1], pa.int32()).cast(pa.date32()),
                "seen": pa.array([1_500_000, None], pa.timestamp("us", "UTC")),
                "email": pa.array(["a@x", None]).dictionary_encode(),
            }
        ),
        "nodes/Place": pa.table(
            {
                "id": ["p", "q"],
                "title": ["here", "there"],
                "spot": pa.array([[0.5, 1.0], None], pa.list_(pa.float64())),
                "tags": [["x", None], []],
            }
        ),
        "edges/Knows": pa.table({"from": ["ann"], "to": ["bob"], "weight": [0.25]}),
        "edges/Visits": pa.table({"from": ["ann", "bob"], "to": ["p", "p"]}),
    }
    for name, table in tables.items():
        (folder / name).mkdir(parents=True)
        pq.write_table(table, folder / name / "part-00000.parquet")
    (folder / "truth.json").write_text("{}")
    return str(folder)


# -- on Spark ------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("LOD-01", "LIN-02", "LAY-06")
def test_parquet_files_of_all_types_become_one_commit(graph: Graph, tmp_path: Path, spark: SparkSession) -> None:
    before = graph.snapshot()
    report = pipeline_load(graph, parquet(tmp_path / "input"), mode="append", spark=spark, actor="me")
    assert (report.nodes_loaded, report.edges_loaded, report.rejected) == (4, 3, 0)
    assert report.commit.actor_id == "me" and report.commit.manifest_version == before.version + 1
    ann, bob = graph.read("node:Person")
    assert (ann["age"], ann["born"], ann["seen"], ann["email"]) == (1, 0, "1970-01-01T00:00:01.500", "a@x")
    assert (bob["age"], bob["seen"], bob["email"]) == (None, None, None)
    assert [(row["spot"], row["tags"]) for row in graph.read("node:Place")] == [([0.5, 1.0], ["x", None]), (None, [])]
    assert [(row["src"], row["dst"], row["weight"]) for row in graph.read("edge:Knows")] == [("ann", "bob", 0.25)]
    assert_sound(graph)
    assert data_files(graph) == referenced_files(graph)


@pytest.mark.requirement("LOD-07", "LOD-11")
def test_what_is_refused_is_the_engines_error_and_leaves_no_file(
    graph: Graph, tmp_path: Path, spark: SparkSession
) -> None:
    graph.load(json.dumps(person("ann", email="a@x")), mode="append")
    before, files = graph.snapshot(), data_files(graph)
    records = [person("bob", email="a@x"), person("eve"), person("eve"), knows("bob", "nobody"), person("ann", age=200)]
    source = written(tmp_path / "input.jsonl", *records)
    with pytest.raises(BadRequest) as engine:
        graph.load(Path(source).read_text(), mode="append")
    with pytest.raises(BadRequest) as pipeline:
        pipeline_load(graph, source, mode="append", spark=spark)
    assert (pipeline.value.code, pipeline.value.details) == (engine.value.code, engine.value.details)
    assert graph.snapshot() == before and data_files(graph) == files
    assert not list(tmp_path.rglob(NOTES_DIR))


@pytest.mark.requirement("LOD-08", "BRA-07")
def test_a_merge_on_a_branch_replaces_rows_there_and_nowhere_else(
    graph: Graph, tmp_path: Path, spark: SparkSession
) -> None:
    graph.load(
        "\n".join(map(json.dumps, [person("ann", age=1), person("bob"), knows("ann", "bob", id="k")])), mode="append"
    )
    graph.branch_create("work")
    records = [person("ann", age=2), person("eve"), knows("eve", "ann", id="k")]
    report = pipeline_load(graph, written(tmp_path / "in.jsonl", *records), mode="merge", branch="work", spark=spark)
    assert report.branch == "work"
    assert rows(graph, branch="work") == ["ann", "bob", "eve"] and rows(graph) == ["ann", "bob"]
    assert [row["age"] for row in graph.read("node:Person", graph.snapshot("work"))] == [2, None, None]
    assert [row["src"] for row in graph.read("edge:Knows", graph.snapshot("work"))] == ["eve"]
    assert_sound(graph)


# -- quarantine ----------------------------------------------------------------------------------------------------


def test_rejected_records_are_kept_with_their_reasons_and_places(graph: Graph, tmp_path: Path, in_process: Any) -> None:
    text = [json.dumps(person("ann")), "", '{"type": "Person", "data": {"name": "bob", "age": 200}}', "{broken"]
    source = tmp_path / "input.jsonl"
    source.write_text("\n".join(text))
    with pytest.raises(BadRequest) as refused:
        loaded(graph, str(source), in_process, tmp_path)
    assert (refused.value.code, refused.value.details["record"]) == ("invalid_json", 3)
    found = quarantined(tmp_path)
    places = [(each["record"], each["line"], each["byte"], each["code"]) for each in found]
    start = len(text[0]) + 2
    assert places == [(2, 3, start, "range_violation"), (3, 4, start + len(text[2]) + 1, "invalid_json")]
    assert [each["text"] for each in found] == text[2:] and {each["file"] for each in found} == {str(source)}


def test_what_hangs_on_a_rejected_record_is_rejected_with_it(graph: Graph, tmp_path: Path, in_process: Any) -> None:
    records = [person("ann"), person("bob", age=200), person("eve"), knows("ann", "eve"), knows("eve", "bob")]
    source = written(tmp_path / "input.jsonl", *records)
    with pytest.raises(BadRequest) as refused:
        loaded(graph, source, in_process, tmp_path, max_rejected=1)
    assert refused.value.code == "range_violation" and rows(graph) == []
    for file in (tmp_path / "kept").iterdir():
        file.unlink()
    report = loaded(graph, source, in_process, tmp_path, max_rejected=2)
    assert (report.rejected, report.nodes_loaded, report.edges_loaded) == (2, 2, 1)
    assert rows(graph) == ["ann", "eve"]
    assert [(each["record"], each["code"]) for each in quarantined(tmp_path)] == [
        (2, "range_violation"),
        (5, "orphan_edge"),
    ]
    assert_sound(graph)
    assert data_files(graph) == referenced_files(graph), "rows that were written with a rejected one are written anew"


def test_a_committed_edge_that_would_dangle_cannot_be_left_out(graph: Graph, tmp_path: Path, in_process: Any) -> None:
    graph.load("\n".join(map(json.dumps, [person("ann"), person("bob"), knows("ann", "bob")])), mode="append")
    source = written(tmp_path / "input.jsonl", person("ann"))
    with pytest.raises(BadRequest) as refused:
        pipeline_load(graph, source, mode="overwrite", spark=in_process, max_rejected=100)
    assert refused.value.code == "orphan_edge" and rows(graph) == ["ann", "bob"]


def test_a_quarantine_that_cannot_be_written_does_not_hide_what_is_wrong(
    graph: Graph, tmp_path: Path, in_process: Any
) -> None:
    (tmp_path / "kept").write_text("a file where a directory should be")
    source = written(tmp_path / "input.jsonl", person("ann"), person("bob", age=200))
    with pytest.raises(BadRequest) as refused:
        loaded(graph, source, in_process, tmp_path)
    assert refused.value.code == "range_violation" and "could not be kept" in str(refused.value.hint)
    with pytest.raises(StorageError):
        loaded(graph, source, in_process, tmp_path, max_rejected=1)
    assert rows(graph) == [], "what is left out must be kept somewhere"


def test_credentials_are_in_no_repr_of_what_travels() -> None:
    secret = "do-not-print-me"
    env = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": secret, "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:1"}
    place, work = Place.of("s3://bucket/x", env), Workplace("s3://bucket/g", "job", "append", env)
    assert secret not in repr(place) + repr(work)
    assert secret not in str(place.refused(OSError(f"denied for {secret}")))
