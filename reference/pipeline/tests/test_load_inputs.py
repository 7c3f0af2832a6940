"""What the files of an input may look like, and what is said of those that cannot be read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reference.errors import BadRequest, OmniError
from reference.graph import Graph
from reference.pipeline.inputs import Place
from reference.pipeline.load import pipeline_load
from reference.pipeline.tests.in_process import in_process
from reference.pipeline.tests.load_words import SCHEMA, graph, loaded, person, quarantined, rows, written

if TYPE_CHECKING:
    from fixtures.stores import EmptyRoot

__all__ = ["graph", "in_process"]


def typed_files(folder: Path, tables: dict[str, pa.Table], **options: Any) -> str:
    """An input of Parquet files, each in the folder that it is named by."""
    for name, table in tables.items():
        (folder / name).mkdir(parents=True)
        pq.write_table(table, folder / name / "x.parquet", **options)
    return str(folder)


@pytest.mark.parametrize(
    "write",
    [
        lambda records: "\n".join(json.dumps(record, indent=2) for record in records),
        lambda records: " ".join(map(json.dumps, records)),
        lambda records: "\r\n\r\n".join(map(json.dumps, records)) + "\r\n",
    ],
    ids=["pretty", "one line", "windows"],
)
@pytest.mark.requirement("LOD-02")
def test_records_may_lie_across_lines_and_pieces(
    graph: Graph, tmp_path: Path, in_process: Any, write: Callable[[list[Any]], str]
) -> None:
    records = [person(f"p{number:02}", age=number) for number in range(12)]
    (tmp_path / "a.json").write_text(write(records))
    second = written(tmp_path / "b.jsonl", person("p11"), person("q"))
    with pytest.raises(BadRequest) as refused:
        pipeline_load(graph, str(tmp_path / "*.json*"), mode="append", spark=in_process)
    assert refused.value.details["record"] == 13, "records are numbered through all files"
    Path(second).unlink()
    assert pipeline_load(graph, str(tmp_path / "a.json"), mode="append", spark=in_process).nodes_loaded == 12


@pytest.mark.parametrize(
    ("column", "code"),
    [
        (pa.array([1, 2**40]), "invalid_value"),
        (pa.array(["1", "2"]), "invalid_value"),
        (pa.array([1, 151]), "range_violation"),
    ],
    ids=["too large", "text", "out of range"],
)
def test_a_wrong_value_in_a_parquet_file_is_a_wrong_value(
    graph: Graph, tmp_path: Path, in_process: Any, column: pa.Array, code: str
) -> None:
    source = typed_files(tmp_path / "input", {"nodes/Person": pa.table({"name": ["a", "b"], "age": column})})
    with pytest.raises(BadRequest) as refused:
        loaded(graph, source, in_process, tmp_path)
    record = 1 if pa.types.is_string(column.type) else 2
    assert (refused.value.code, refused.value.details["record"]) == (code, record)
    assert [json.loads(each["text"])["data"]["name"] for each in quarantined(tmp_path)][-1] == "b"


def test_records_may_be_columns_of_a_parquet_file(graph: Graph, tmp_path: Path, in_process: Any) -> None:
    table = pa.table(
        {
            "type": ["Person", "Person", None],
            "edge": [None, None, "Knows"],
            "from": [None, None, "a"],
            "to": [None, None, "b"],
            "data": ['{"name": "a"}', '{"name": "b", "age": 3}', None],
        }
    )
    pq.write_table(table, tmp_path / "records.parquet")
    report = pipeline_load(graph, str(tmp_path / "records.parquet"), mode="append", spark=in_process)
    assert (report.nodes_loaded, report.edges_loaded) == (2, 1)


def test_an_input_that_is_not_there_is_not_found(graph: Graph, tmp_path: Path, in_process: Any) -> None:
    (tmp_path / "empty").mkdir()
    for source, code in ((tmp_path / "nothing", "file_unusable"), (tmp_path / "empty", "no_input")):
        with pytest.raises(OmniError) as refused:
            pipeline_load(graph, str(source), mode="append", spark=in_process)
        assert refused.value.code == code


@pytest.mark.requirement("STO-06")
def test_graph_input_and_quarantine_may_be_on_s3(graph_root: EmptyRoot, in_process: Any, tmp_path: Path) -> None:
    graph = Graph.init(f"{graph_root.uri}/graph", SCHEMA, env=graph_root.env)
    place = Place.of(f"{graph_root.uri}/input", graph_root.env)
    place.system().create_dir(place.path, recursive=True)
    with place.system().open_output_stream(f"{place.path}/a.jsonl") as file:
        file.write("\n".join(map(json.dumps, [person("ann"), person("bob", age=-1)])).encode())
    report = pipeline_load(graph, place.uri, mode="merge", spark=in_process, max_rejected=1)
    assert (report.nodes_loaded, report.rejected) == (1, 1) and rows(graph) == ["ann"]
    assert report.quarantine is not None and report.quarantine.startswith(f"{graph_root.uri}/_rejected-input/")
