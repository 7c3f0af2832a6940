"""Load on Spark: what only it promises, beyond being the engine's load (`test_load_as_the_engine`)."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conformance.audit import audit
from failpoints.registry import armed
from reference.errors import BadRequest, Conflict, OmniError, OutcomePending
from reference.graph import Graph
from reference.pipeline import load as load_module
from reference.pipeline.inputs import Place
from reference.pipeline.load import LoadReport, pipeline_load
from reference.pipeline.orphans import clean_before
from reference.pipeline.scan import PieceItem, scan_piece
from reference.pipeline.staging import NOTES_DIR, Workplace
from reference.pipeline.tests.in_process import KeyedScan, in_process

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from fixtures.stores import EmptyRoot

__all__ = ["in_process"]

SCHEMA = """
node Person { name: String @key  age: I32?  born: Date?  seen: DateTime?  email: String? @unique  @range(age, 0..150) }
node Place { title: String  spot: Vector(2)?  tags: [String]? }
edge Knows: Person -> Person { weight: F64? }
edge Visits: Person -> Place @card(0..2)
"""


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return Graph.init(str(tmp_path / "graph"), SCHEMA)


def person(name: str, **data: Any) -> dict[str, Any]:
    return {"type": "Person", "data": {"name": name, **data}}


def knows(source: str, target: str, **data: Any) -> dict[str, Any]:
    return {"edge": "Knows", "from": source, "to": target, "data": data}


def written(path: Path, *records: dict[str, Any]) -> str:
    path.write_text("\n".join(map(json.dumps, records)) + "\n")
    return str(path)


def rows(graph: Graph, table_key: str = "node:Person", branch: str | None = None) -> list[str]:
    return [row["id"] for row in graph.read(table_key, graph.snapshot(branch))]


def data_files(graph: Graph) -> set[str]:
    """The data files of all tables on disk."""
    root = Path(graph.store.root.path)
    found = {str(path.relative_to(root)) for path in root.rglob("*.lance") if path.parent.name == "data"}
    return {name for name in found if not name.startswith("__manifest/")}


def referenced_files(graph: Graph) -> set[str]:
    """The data files that any version of a table of main refers to."""
    found = set()
    for entry in graph.snapshot().entries.values():
        for version in range(1, entry.version + 1):
            for fragment in graph.store.tables.open(entry.path, None, version).get_fragments():
                found |= {f"{entry.path}/data/{file.path}" for file in fragment.metadata.files}
    return found


def assert_sound(graph: Graph) -> None:
    report = audit(graph.store.root.uri)
    assert report.findings == (), report.findings


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


def quarantined(tmp_path: Path) -> list[dict[str, Any]]:
    files = list((tmp_path / "kept").iterdir())
    assert len(files) == 1, files
    return [json.loads(line) for line in files[0].read_text().splitlines()]


def loaded(graph: Graph, source: str, session: Any, tmp_path: Path, **options: Any) -> LoadReport:
    kept = str(tmp_path / "kept")
    return pipeline_load(graph, source, mode="append", spark=session, quarantine=kept, **options)


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


# -- what the files may look like ----------------------------------------------------------------------------------


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
    (tmp_path / "nodes" / "Person").mkdir(parents=True)
    pq.write_table(pa.table({"name": ["a", "b"], "age": column}), tmp_path / "nodes" / "Person" / "x.parquet")
    with pytest.raises(BadRequest) as refused:
        pipeline_load(graph, str(tmp_path), mode="append", spark=in_process, quarantine=str(tmp_path / "kept"))
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
    for source, code in ((tmp_path / "nothing", "file_unusable"), (tmp_path, "no_input")):
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
    assert report.quarantine is not None and report.quarantine.startswith(f"{place.uri}.rejected/")


# -- others, retries and crashes -----------------------------------------------------------------------------------


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


def test_credentials_are_in_no_repr_of_what_travels() -> None:
    secret = "do-not-print-me"
    env = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": secret, "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:1"}
    place, work = Place.of("s3://bucket/x", env), Workplace("s3://bucket/g", "job", "append", env)
    assert secret not in repr(place) + repr(work)
    assert secret not in str(place.refused(OSError(f"denied for {secret}")))
