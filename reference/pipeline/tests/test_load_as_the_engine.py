"""The pipeline's load and the engine's load are one: the same verdict, the same error, the same rows.

Two copies of one graph get the same records, good and bad, in each mode; one through `load`, one through the pipeline.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
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
edge Near: Place -> Place
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
    {"edge": "Near", "from": "p", "to": "q", "data": {"id": "n1"}},
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


def edges(name: str, sources: Any, targets: Any, **fields: Any) -> st.SearchStrategy[dict[str, Any]]:
    ids = st.sampled_from(["k1", "k2", "v1", "v2", "n1", "a", "b", "new", "x", "y"])
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
    edges("Near", places, places),
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


def both(template: Path, tmp_path: Path, text: str, mode: LoadMode, session: Any) -> tuple[Any, Any]:
    outcomes = []
    source = tmp_path / "input.jsonl"
    source.write_text(text)
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
    shutil.rmtree(tmp_path / "_rejected-input.jsonl", ignore_errors=True)
    return outcomes[0], outcomes[1]


@pytest.mark.requirement("LOD-01", "VAL-02", "LOD-11")
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(records=records, mode=st.sampled_from(["append", "merge", "merge", "overwrite"]))
def test_any_records_have_the_same_outcome(
    template: Path, tmp_path: Path, in_process: Any, records: list[Any], mode: LoadMode
) -> None:
    text = "\n".join(record if isinstance(record, Line) else json.dumps(record) for record in records)
    engine, pipeline = both(template, tmp_path, text, mode, in_process)
    assert pipeline == engine
