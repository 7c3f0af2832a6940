"""The pipeline's load and the engine's load are one: the same verdict, the same error, the same rows.

Two copies of one graph get the same records, good and bad, in each mode; one through `load`, one through the pipeline,
from one file or from several of which some may be empty, as JSON lines, as rows of Parquet files and as records of one.
"""

from __future__ import annotations

import itertools
import json
import re
import shutil
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, assume, given, reject, settings
from hypothesis import strategies as st

from reference.errors import OmniError
from reference.graph import Graph
from reference.operations.load import LoadMode
from reference.pipeline.load import pipeline_load
from reference.pipeline.tests.in_process import in_process

__all__ = ["in_process"]

SCHEMA = """
node Person {
  name: String @key
  age: I32?
  email: String? @unique
  mood: enum(good, bad)?
  @range(age, 0..9)
  @check(name, "^[a-z]")
}
node Place {
  title: String?
  code: I64? @unique
  zone: String?
  spot: F64?
  @unique(zone, spot)
}
edge Knows: Person -> Person @card(0..2) {
  since: Date?
}
edge Visits: Person -> Place @card(1..2) {
  rank: I32?
  @unique(src, rank)
}
edge Near: Place -> Place {
  position: I32?
  count: I32?
  @unique(position, count)
}
node Slot {
  hash: String @key
  position: I32? @unique
  order: I64?
  value: String?
  check: Bool?
  id_: String?
  seen: DateTime?
  face: Vector(2)?
  @unique(order, value)
  @unique(id_, seen)
}
edge Fills: Person -> Slot @card(0..1) {
  order: I32? @unique
  value: F64?
}
"""
CONTENT = [
    {"type": "Person", "data": {"name": "a", "age": 1, "email": "a@x"}},
    {"type": "Person", "data": {"name": "b", "email": "b@x"}},
    {"type": "Person", "data": {"name": "c"}},
    {"type": "Place", "data": {"id": "p", "code": 1, "zone": "z", "spot": 1}},
    {"type": "Place", "data": {"id": "q", "zone": "z", "spot": 2}},
    {"edge": "Knows", "from": "a", "to": "b", "data": {"id": "k1"}},
    {"edge": "Knows", "from": "a", "to": "c", "data": {"id": "k2"}},
    {"edge": "Visits", "from": "a", "to": "p", "data": {"id": "v1", "rank": 1}},
    {"edge": "Visits", "from": "b", "to": "p", "data": {"id": "v2", "rank": 1}},
    {"edge": "Near", "from": "p", "to": "q", "data": {"id": "n1", "position": 1, "count": 1}},
    {"type": "Slot", "data": {"hash": "s", "position": 1, "order": 1, "value": "x", "id_": "i", "seen": 0}},
    {"edge": "Fills", "from": "a", "to": "s", "data": {"id": "f1", "order": 1}},
]


class Line(str):
    """A line as it is, in place of a record."""


ULID = re.compile(r"01[0-9A-HJKMNP-TV-Z]{24}")

names = st.sampled_from("aabbccdef")
places = st.sampled_from("pqrst")


def data(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Some of these fields."""
    return st.fixed_dictionaries({}, optional=fields)


def seldom(strange: list[Any], usual: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.integers(0, 30).flatmap(lambda number: st.sampled_from(strange) if number == 0 else usual)


people = st.builds(
    lambda name, rest: {"type": "Person", "data": {"name": name, **rest}},
    seldom(["Z", None, 7], st.sampled_from("abcdefgh")),
    data(
        age=seldom([10, -1, "old", 1.5], st.integers(0, 9)),
        email=st.sampled_from(["a@x", "b@x", "c@x", "d@x", None]),
        mood=seldom(["ugly"], st.sampled_from(["good", "bad", None])),
        id=st.sampled_from("abcdefgh"),
    ),
) | st.builds(lambda name: {"type": "Person", "data": {"name": name}}, st.sampled_from("abcdefgh"))
spots = st.builds(
    lambda rest: {"type": "Place", "data": rest},
    data(
        id=seldom(["", 5], places),
        code=st.integers(1, 4),
        zone=st.sampled_from(["z", "y", None]),
        spot=st.sampled_from([1, 2, 0.0, -0.0, 2.5]),
    ),
)


times = st.sampled_from(["1970-01-01T00:00:00", "2026-01-02T03:04:05.678", "0001-01-01T00:00:00", None])
slots = st.builds(
    lambda name, rest: {"type": "Slot", "data": {"hash": name, **rest}},
    st.sampled_from("stuv"),
    data(
        position=st.integers(1, 3),
        order=st.integers(1, 2),
        value=st.sampled_from(["x", "y", None]),
        check=seldom(["yes"], st.booleans()),
        id_=st.sampled_from("ij"),
        seen=seldom(["soon", 10**18], times),
        face=seldom([[1.0], [0.5, None]], st.sampled_from([[0.5, 1.0], [1, 2], None])),
    ),
)


def edges(name: str, sources: Any, targets: Any, **fields: Any) -> st.SearchStrategy[dict[str, Any]]:
    ids = st.sampled_from(["k1", "k2", "v1", "v2", "n1", "f1", "a", "b", "new", "x", "y"])
    return st.builds(
        lambda source, target, rest: {"edge": name, "from": source, "to": target, "data": rest},
        sources,
        seldom([None], targets),
        data(id=ids, **fields),
    )


strange = st.sampled_from(
    [
        {"type": "Nobody"},
        {"edge": "knows", "from": "a", "to": "b"},
        {"type": "Person"},
        {"type": "Person", "edge": "Knows"},
        {"type": "Person", "data": {"name": "h", "size": 3}},
        {"type": "Person", "data": {"name": "h"}, "more": 1},
        5,
        [],
        # Lines that are no records: half a value, two values, a field twice, a surrogate, a value over several lines.
        Line('{"type": '),
        Line('{"type": "Person", "data": {"name": "g"}} {"type": "Person", "data": {"name": "h"}}'),
        Line('{"type": "Person", "data": {"name": "g", "name": "h"}}'),
        Line('{"type": "Person", "data": {"name": "\\ud800"}}'),
        Line('{"type": "Person",\n "data": {"name": "h"}}'),
        Line("  "),
    ]
)
usual = st.one_of(
    people,
    spots,
    edges("Knows", names, names, since=seldom(["soon"], st.sampled_from(["2020-01-01", None]))),
    edges("Visits", names, places, rank=st.integers(1, 2)),
    edges("Near", places, places, position=st.integers(1, 2), count=st.integers(1, 2)),
    slots,
    edges("Fills", names, st.sampled_from("stuv"), order=st.integers(1, 3), value=st.sampled_from([0.5, 1, None])),
)
records = st.lists(st.integers(0, 20).flatmap(lambda number: strange if number == 0 else usual), max_size=8)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "graph"
    Graph.init(str(path), SCHEMA).load("\n".join(map(json.dumps, CONTENT)), mode="append")
    return path


def outcome(load: Any, graph: Graph) -> Any:
    """The rows afterwards, or the error; ids that were made up are all alike."""
    try:
        load()
    except OmniError as error:
        body = error.to_json()
        body.pop("hint", None)
        if body["code"] == "invalid_json":
            body.pop("message")  # Where in the text it breaks off is told relative to what was read at once.
        return json.loads(ULID.sub("ULID", json.dumps(body)))
    return sorted(ULID.sub("ULID", line.decode()) for line in graph.export())


Write = Callable[[Path, list[Any], list[int]], str]


def text_of(records: list[Any]) -> str:
    return "\n".join(record if isinstance(record, Line) else json.dumps(record) for record in records)


def one_file(folder: Path, records: list[Any], _: list[int]) -> str:
    (folder / "input.jsonl").write_text(text_of(records))
    return text_of(records)


def some_files(folder: Path, records: list[Any], cuts: list[int]) -> str:
    """Records in up to three files, each of which may be empty."""
    for number, part in enumerate(parts_of(records, cuts)):
        (folder / f"{number}.jsonl").write_text(text_of(part))
    return text_of(records)


def rows_of_types(folder: Path, records: list[Any], cuts: list[int]) -> str:
    """The rows of each type as Parquet files, and the records as the pipeline numbers them: by the paths of files."""
    by_type: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for record in records:
        assume(type(record) is dict and record.keys() <= {"type", "edge", "from", "to", "data"})
        assume(("type" in record) != ("edge" in record))
        by_type[f"nodes/{record['type']}" if "type" in record else f"edges/{record['edge']}"].append(record)
    assume(by_type)
    ordered = []
    for name, members in sorted(by_type.items(), key=lambda each: (each[0].startswith("edges"), each[0])):
        (folder / name).mkdir(parents=True)
        table = pa.table({column: typed([flat(each).get(column) for each in members]) for column in names_in(members)})
        assume(table.num_columns)
        bounds = [0, *sorted(min(cut, len(members)) for cut in cuts), len(members)]
        for number, (start, end) in enumerate(itertools.pairwise(bounds)):
            pq.write_table(table.slice(start, end - start), folder / name / f"{number}.parquet")
        ordered += [{**each, "data": without_nulls(each.get("data", {}))} for each in members]
    return text_of(ordered)


def records_of_one(folder: Path, records: list[Any], _: list[int]) -> str:
    """All records in one Parquet file, with what they say as JSON."""
    fields = ("type", "edge", "from", "to", "data")
    assume(all(type(record) is dict and record.keys() <= set(fields) for record in records))
    columns = {name: [record.get(name) for record in records] for name in fields[:4]}
    texts = [None if "data" not in record else json.dumps(record["data"]) for record in records]
    table = {name: pa.array(values, pa.string()) for name, values in columns.items()}
    pq.write_table(pa.table({**table, "data": pa.array(texts, pa.string())}), folder / "records.parquet")
    return text_of(records)


def parts_of(records: list[Any], cuts: list[int]) -> list[list[Any]]:
    bounds = [0, *sorted(min(cut, len(records)) for cut in cuts), len(records)]
    return [records[start:end] for start, end in itertools.pairwise(bounds)]


def flat(record: dict[str, Any]) -> dict[str, Any]:
    return {**{side: record[side] for side in ("from", "to") if side in record}, **record.get("data", {})}


def names_in(records: list[dict[str, Any]]) -> list[str]:
    return sorted({name for record in records for name in flat(record)})


def without_nulls(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def typed(values: list[Any]) -> pa.Array:
    """Values as a column, with times as times where they are some. A column has one type, so a mixture cannot be."""
    try:
        column = pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        reject()
    for kind in (pa.date32(), pa.timestamp("ms")) if pa.types.is_string(column.type) else ():
        try:
            return column.cast(kind)
        except pa.ArrowInvalid:
            continue
    return column


FORMS: dict[str, Write] = {
    "one file": one_file,
    "some files": some_files,
    "rows of types": rows_of_types,
    "records of one": records_of_one,
}


def both(
    template: Path, tmp_path: Path, records: list[Any], mode: LoadMode, session: Any, write: Write, cuts: list[int]
) -> tuple[Any, Any]:
    outcomes = []
    source = tmp_path / "input"
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir()
    text = write(source, records, cuts)
    for name in ("engine", "pipeline"):
        place = tmp_path / name
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(template, place)
        graph = Graph.open(str(place))
        before = graph.snapshot().to_json()
        if name == "engine":
            outcomes.append(outcome(lambda graph=graph: graph.load(text, mode=mode), graph))
        else:
            load = lambda graph=graph: pipeline_load(graph, str(source), mode=mode, spark=session)  # noqa: E731
            outcomes.append(outcome(load, graph))
        if isinstance(outcomes[-1], dict):
            assert graph.snapshot().to_json() == before, "a load that is refused changes nothing"
    shutil.rmtree(tmp_path / "_rejected-input", ignore_errors=True)
    return outcomes[0], outcomes[1]


@pytest.mark.requirement("LOD-01", "VAL-02", "LOD-11")
@settings(
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(
    records=records,
    mode=st.sampled_from(["append", "merge", "merge", "overwrite"]),
    form=st.sampled_from(sorted(FORMS)),
    cuts=st.lists(st.integers(0, 6), max_size=2),
)
def test_any_records_have_the_same_outcome(
    template: Path, tmp_path: Path, in_process: Any, records: list[Any], mode: LoadMode, form: str, cuts: list[int]
) -> None:
    engine, pipeline = both(template, tmp_path, records, mode, in_process, FORMS[form], cuts)
    assert pipeline == engine
