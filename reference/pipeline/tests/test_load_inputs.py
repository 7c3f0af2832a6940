"""What the files of an input may look like, and what is said of those that cannot be read."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reference.errors import BadRequest, OmniError
from reference.format.values import blob_column
from reference.graph import Graph
from reference.pipeline import lines as lines_module
from reference.pipeline import parse, scan
from reference.pipeline.inputs import Piece, Place, cut, find_files
from reference.pipeline.lines import Raw
from reference.pipeline.load import pipeline_load
from reference.pipeline.rejected import beside
from reference.pipeline.tests.in_process import in_process
from reference.pipeline.tests.load_words import SCHEMA, graph, knows, loaded, person, quarantined, rows, written

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


def test_a_file_with_a_byte_order_mark_is_refused_by_its_name(graph: Graph, tmp_path: Path, in_process: Any) -> None:
    (tmp_path / "marked.jsonl").write_bytes(b"\xef\xbb\xbf" + json.dumps(person("ann")).encode())
    with pytest.raises(BadRequest, match=r"marked\.jsonl begins with") as refused:
        pipeline_load(graph, str(tmp_path / "marked.jsonl"), mode="append", spark=in_process)
    assert refused.value.code == "byte_order_mark"


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


# -- which files are taken ------------------------------------------------------------------------------------------


@pytest.mark.requirement("LOD-01")
def test_files_of_all_kinds_are_taken_together_at_any_depth(graph: Graph, tmp_path: Path, in_process: Any) -> None:
    source = tmp_path / "input"
    typed_files(source, {"nodes/Person": pa.table({"name": ["ann"]})})
    typed_files(source, {"nodes/Person/year=2020/month=1": pa.table({"name": ["bob"]})})
    written(source / "edges.jsonl", knows("ann", "bob"))
    (source / "_SUCCESS").write_text("")
    (source / "schema.pg").write_text(SCHEMA)
    (source / "truth.json").write_text("{}")
    report = pipeline_load(graph, str(source), mode="append", spark=in_process)
    assert (report.nodes_loaded, report.edges_loaded) == (2, 1)
    assert rows(graph) == ["ann", "bob"]


@pytest.mark.parametrize("name", ["b.jsonl.gz", "b.csv", "nodes/Person/b.parquet.crc", "b"])
def test_a_file_that_cannot_be_read_is_refused_by_its_name(
    graph: Graph, tmp_path: Path, in_process: Any, name: str
) -> None:
    source = tmp_path / "input"
    (source / name).parent.mkdir(parents=True)
    (source / name).write_text("")
    written(source / "a.jsonl", person("ann"))
    with pytest.raises(BadRequest) as refused:
        pipeline_load(graph, str(source), mode="append", spark=in_process)
    assert (refused.value.code, refused.value.details["file"]) == ("file_unusable", str(source / name))
    assert rows(graph) == []


def test_a_property_that_only_a_directory_has_is_not_lost(graph: Graph, tmp_path: Path, in_process: Any) -> None:
    source = typed_files(tmp_path / "input", {"nodes/Person/age=7": pa.table({"name": ["ann"]})})
    with pytest.raises(BadRequest) as refused:
        pipeline_load(graph, source, mode="append", spark=in_process)
    assert (refused.value.code, refused.value.details["property"]) == ("file_unusable", "age")


def test_what_was_rejected_is_not_taken_for_input_the_next_time(graph: Graph, tmp_path: Path, in_process: Any) -> None:
    source = tmp_path / "input"
    source.mkdir()
    with pytest.raises(BadRequest):
        file = written(source / "a.jsonl", person("ann", age="old"))
        pipeline_load(graph, file, mode="append", spark=in_process)
    assert list(source.rglob("rejected-*")), "what is rejected of a file lies beside it"
    written(source / "a.jsonl", person("ann", age=1))
    assert pipeline_load(graph, str(source), mode="append", spark=in_process).nodes_loaded == 1


@pytest.mark.parametrize(
    ("source", "quarantine"),
    [
        ("/data/in", "/data/_rejected-in"),
        ("/data/in/a.jsonl", "/data/in/_rejected-a.jsonl"),
        ("/data/in/part-*.jsonl", "/data/_rejected-in"),
        ("s3://bucket/in", "s3://bucket/_rejected-in"),
        ("s3://bucket", "s3://bucket/_rejected"),
        ("/data", "/data/_rejected"),
    ],
)
def test_the_quarantine_lies_beside_the_input(source: str, quarantine: str) -> None:
    assert beside(Place.of(source, {})) == quarantine


# -- files that are damaged or strange -------------------------------------------------------------------------------


def test_an_empty_file_before_a_bad_record_changes_nothing(graph: Graph, tmp_path: Path, in_process: Any) -> None:
    source = tmp_path / "input"
    source.mkdir()
    (source / "a.jsonl").write_text("")
    written(source / "b.jsonl", person("ann"), person("bob", age="old"), person("eve"))
    report = loaded(graph, str(source), in_process, tmp_path, max_rejected=1)
    assert rows(graph) == ["ann", "eve"] and report.rejected == 1
    assert [(each["record"], each["line"]) for each in quarantined(tmp_path)] == [(2, 2)]


def test_a_column_that_is_there_twice_is_refused(graph: Graph, tmp_path: Path, in_process: Any) -> None:
    table = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["name", "name"])
    with pytest.raises(BadRequest) as refused:
        source = typed_files(tmp_path / "input", {"nodes/Person": table})
        pipeline_load(graph, source, mode="append", spark=in_process)
    assert (refused.value.code, refused.value.details["column"]) == ("file_unusable", "name")


def test_a_damaged_file_is_a_bad_file_and_not_a_bad_store(graph: Graph, tmp_path: Path, in_process: Any) -> None:
    source = typed_files(tmp_path / "input", {"nodes/Person": pa.table({"name": [f"n{n}" for n in range(5_000)]})})
    file = Path(source) / "nodes" / "Person" / "x.parquet"
    content = bytearray(file.read_bytes())
    content[10:4_000] = b"\xff" * 3_990
    file.write_bytes(content)
    with pytest.raises(BadRequest) as refused:
        pipeline_load(graph, source, mode="append", spark=in_process)
    assert (refused.value.code, refused.value.details["file"]) == ("file_unusable", str(file))


@pytest.mark.parametrize("line", [b"\xff", b'{"type": "Person", "data": {"name": "\xff"}}', b"{broken", b"[" * 990])
def test_a_broken_line_has_the_engines_error(graph: Graph, tmp_path: Path, in_process: Any, line: bytes) -> None:
    good = [json.dumps(person(f"p{number}")).encode() for number in range(20)]
    data = b"\n".join([*good[:9], line, *good[9:]])
    (tmp_path / "input.jsonl").write_bytes(data)
    with pytest.raises(BadRequest) as engine:
        graph.load(data, mode="append")
    with pytest.raises(BadRequest) as pipeline:
        loaded(graph, str(tmp_path / "input.jsonl"), in_process, tmp_path)
    assert (pipeline.value.code, pipeline.value.details) == (engine.value.code, engine.value.details)
    assert pipeline.value.message.partition(" (")[0].partition(": line")[0] in engine.value.message


def test_a_value_that_is_nested_deep_has_the_engines_error(graph: Graph, tmp_path: Path, in_process: Any) -> None:
    for depth in (100, 900, 970, 985):
        text = json.dumps(person("ann"))[:-2] + f', "age": {"[" * depth}{"]" * depth}}}}}'
        (tmp_path / "input.jsonl").write_text(text)
        with pytest.raises(BadRequest) as engine:
            graph.load(text, mode="append")
        with pytest.raises(BadRequest) as pipeline:
            pipeline_load(graph, str(tmp_path / "input.jsonl"), mode="append", spark=in_process)
        assert (pipeline.value.code, pipeline.value.details) == (engine.value.code, engine.value.details)


def test_a_broken_line_leaves_its_file_in_pieces(
    graph: Graph, tmp_path: Path, in_process: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces: list[Piece] = []
    real = parse.parse_piece

    def parse_piece(place: Place, piece: Piece, *rest: Any) -> Any:
        pieces.append(piece)
        return real(place, piece, *rest)

    monkeypatch.setattr(scan, "parse_piece", parse_piece)
    lines = [json.dumps(person(f"p{number:02}")) for number in range(20)]
    source = tmp_path / "input.jsonl"
    source.write_text("\n".join([*lines[:9], '{"type": x}', "{broken", *lines[9:], '{"type": "Person"']))
    report = loaded(graph, str(source), in_process, tmp_path, max_rejected=3)
    assert (report.nodes_loaded, report.rejected) == (20, 3)
    assert not any(piece.is_stream for piece in pieces) and len({piece.start for piece in pieces}) > 3
    assert [each["line"] for each in quarantined(tmp_path)] == [10, 11, 23]


def test_a_piece_that_cannot_be_counted_is_not_passed_over(
    graph: Graph, tmp_path: Path, in_process: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two readers that disagree about a stream mean lost records, and must be heard."""
    source = tmp_path / "input.json"
    source.write_text(json.dumps(person("ann"), indent=1) + json.dumps(person("bob"), indent=1))
    real = lines_module.stream
    monkeypatch.setattr(parse, "stream", lambda data: real(data)[:1] * 2 + [Raw(0, b"{} {}")])
    with pytest.raises(OmniError) as refused:
        pipeline_load(graph, str(source), mode="append", spark=in_process)
    assert rows(graph) == [], refused.value


@pytest.mark.parametrize("row_group_size", [2, 7, 100])
def test_row_groups_of_any_size_are_cut_into_pieces(
    graph: Graph, tmp_path: Path, in_process: Any, row_group_size: int
) -> None:
    names = [f"p{number:02}" for number in range(20)]
    source = typed_files(tmp_path / "input", {"nodes/Person": pa.table({"name": names})}, row_group_size=row_group_size)
    pieces = cut(Place.of(source, {}), find_files(Place.of(source, {})))
    assert sum(piece.records for piece in pieces) == 20 and max(piece.records for piece in pieces) <= 7
    pipeline_load(graph, source, mode="append", spark=in_process)
    assert rows(graph) == names


# -- values of Parquet files -----------------------------------------------------------------------------------------


def test_a_struct_of_data_gives_only_what_is_not_null(graph: Graph, tmp_path: Path, in_process: Any) -> None:
    records = [
        {"type": "Person", "data": {"name": "ann", "title": None}},
        {"type": "Place", "data": {"name": None, "title": "here"}},
    ]
    pq.write_table(pa.Table.from_pylist(records), tmp_path / "records.parquet")
    report = pipeline_load(graph, str(tmp_path / "records.parquet"), mode="append", spark=in_process)
    assert report.nodes_loaded == 2


@pytest.mark.parametrize(
    "column",
    [
        pa.array([b"x"]),
        pa.array([0], pa.timestamp("ms")),
        pa.array([Decimal("1.5")]),
        pa.array([b"\xff"]).view(pa.string()),
    ],
    ids=["bytes", "a time", "a decimal", "broken text"],
)
def test_nothing_becomes_text_that_is_none(graph: Graph, tmp_path: Path, in_process: Any, column: pa.Array) -> None:
    source = typed_files(tmp_path / "input", {"nodes/Place": pa.table({"title": column})})
    with pytest.raises(BadRequest) as refused:
        pipeline_load(graph, source, mode="append", spark=in_process)
    assert refused.value.code == "invalid_value" and refused.value.details["property"] == "title"


def test_a_time_beyond_the_calendar_is_refused(graph: Graph, tmp_path: Path, in_process: Any) -> None:
    times = pa.array([2**60], pa.timestamp("ms"))
    source = typed_files(tmp_path / "input", {"nodes/Person": pa.table({"name": ["ann"], "seen": times})})
    with pytest.raises(BadRequest) as refused:
        pipeline_load(graph, source, mode="append", spark=in_process)
    assert refused.value.code == "invalid_value" and refused.value.details["property"] == "seen"


@pytest.mark.requirement("EXP-06")
def test_blobs_come_back_as_they_were_exported(tmp_path: Path, in_process: Any) -> None:
    schema = "node Photo { name: String @key  content: Blob? }"
    graph = Graph.init(str(tmp_path / "graph"), schema)
    contents = ["base64:aGFsbG8=", "base64:", "s3://bucket/x", None]
    values = [b"hallo", b"", "s3://bucket/x", None]
    names = [f"p{number}" for number in range(4)]
    photos = pa.table({"name": names, "content": blob_column(values)})
    pipeline_load(graph, typed_files(tmp_path / "in", {"nodes/Photo": photos}), mode="append", spark=in_process)
    assert [row["content"] for row in graph.read("node:Photo")] == contents
    storage = pa.array([{"data": b"hallo", "uri": None}, {"data": None, "uri": "no uri"}])
    for column, code in ((pa.array([b"hallo", None]), None), (storage, "invalid_value")):
        source = typed_files(tmp_path / str(code), {"nodes/Photo": pa.table({"name": names[:2], "content": column})})
        if code is None:
            pipeline_load(graph, source, mode="overwrite", spark=in_process)
            assert [row["content"] for row in graph.read("node:Photo")] == [contents[0], None]
        else:
            with pytest.raises(BadRequest) as refused:
                pipeline_load(graph, source, mode="overwrite", spark=in_process)
            assert (refused.value.code, refused.value.details["record"]) == (code, 2)


def test_a_property_named_as_an_end_cannot_come_in_a_file_of_edges(tmp_path: Path, in_process: Any) -> None:
    graph = Graph.init(str(tmp_path / "graph"), "node P { name: String @key }\nedge E: P -> P { from: String? }")
    source = typed_files(tmp_path / "in", {"edges/E": pa.table({"from": ["a"], "to": ["a"]})})
    with pytest.raises(BadRequest) as refused:
        pipeline_load(graph, source, mode="append", spark=in_process)
    assert refused.value.code == "file_unusable"
