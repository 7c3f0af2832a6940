"""The model and the reference engine agree on histories that are hard to meet by chance.

Each is a short script: histories that cross, a branch that is gone, values that look alike, rules that only the whole
change can keep or break.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from conformance.model.tests.graphs import is_, knows
from conformance.model.tests.side_by_side import SideBySide, Step
from conformance.model.tests.test_against_reference import SCHEMA

Record = dict[str, Any]


def person(name: str, **data: Any) -> Record:
    return {"type": "Person", "data": {"name": name, **data}}


def place(row_id: str, **data: Any) -> Record:
    return {"type": "Place", "data": {"id": row_id, "title": row_id, **data}}


def lives(row_id: str, source: str, target: str, **data: Any) -> Record:
    return {"edge": "Lives", "from": source, "to": target, "data": {"id": row_id, **data}}


def load(branch: str, *records: Record, mode: str = "merge") -> Step:
    return {"do": "load", "mode": mode, "branch": branch, "records": list(records)}


def mutate(branch: str, *statements: Step) -> Step:
    return {"do": "mutate", "branch": branch, "statements": list(statements)}


def remove(name: str, table: str = "Person") -> Step:
    return {"op": "delete", "type": table, "where": is_("id", name)}


def create(name: str, source: str = "main") -> Step:
    return {"do": "branch_create", "name": name, "source": source}


def delete(name: str) -> Step:
    return {"do": "branch_delete", "name": name}


def merge(source: str, target: str) -> Step:
    return {"do": "merge", "source": source, "target": target}


OPTIMIZE: Step = {"do": "optimize"}
SETTLED = load(
    "main",
    *(person(name) for name in "ab"),
    *(place(row_id) for row_id in "xyz"),
    lives("1", "a", "x"),
    lives("2", "a", "y"),
)
CROSSED = (
    create("one"),
    create("two"),
    load("one", person("e", age=1)),
    load("two", person("f", age=1)),
    create("one-before", "one"),
    create("two-before", "two"),
    merge("two-before", "one"),
    merge("one-before", "two"),
)
MERGED_A_THIRD = (
    *map(create, ("one", "two", "third")),
    load("third", person("e", age=1)),
    load("one", person("f")),
    load("two", person("g")),
    merge("third", "one"),
    merge("third", "two"),
)

SCRIPTS: dict[str, tuple[Step, ...]] = {
    "crossed, then one row of the first": (
        *CROSSED, load("one", person("e", age=2)), merge("one", "two"), merge("two", "one"),
    ),
    "crossed, then one row of the second": (
        *CROSSED, load("one", person("f", age=2)), merge("one", "two"), merge("two", "one"),
    ),
    "both merged a third branch": (*MERGED_A_THIRD, load("one", person("e", age=2)), merge("one", "two")),
    "both merged a third branch that is gone, and made again": (
        *MERGED_A_THIRD, delete("third"), create("third"), load("third", person("h")), load("one", person("e", age=2)),
        merge("one", "two"), merge("third", "two"), merge("two", "third"),
    ),
    "a branch of a branch, deleted from the leaves": (
        create("one"), load("one", person("c")), merge("one", "main"), create("sub", "one"), delete("one"),
        load("sub", person("d")), merge("sub", "main"), merge("main", "sub"), delete("sub"), delete("one"),
    ),
    "zeros and lists that look alike": (
        load("main", person("a", score=0.0, tags=["a", "b"])), create("one"), OPTIMIZE,
        load("one", person("a", score=-0.0, tags=["a", "b"])), load("main", person("a", score=0.0, tags=["a, b"])),
        merge("one", "main"), load("main", person("a", score=0.0, tags=["a", "b"])), merge("one", "main"), OPTIMIZE,
        load("one", person("b", score=0.0, tags=[])), load("main", person("b", tags=None)), merge("main", "one"),
    ),
    "a blob that is empty, null, or the same": (
        load("main", place("x", photo="base64:"), place("y", photo="base64:eA=="), place("z", photo="base64:")),
        create("one"), OPTIMIZE,
        load("one", place("x", photo=None)), load("one", place("y", photo="base64:eA==")),
        load("main", place("y", built=1)), merge("one", "main"), merge("main", "one"),
    ),
    "unique values that change hands": (
        load("main", person("a", email="1"), person("b", email="2")), create("one"),
        load("one", person("a", email="2"), person("b", email="1")), load("main", person("c")), merge("one", "main"),
        load("one", person("d", email="3")), load("main", person("e", email="3")), merge("one", "main"),
        mutate("main", *({"op": "insert", **person(name, email=email)} for name, email in ("p1", "q2", "p2", "q1"))),
    ),
    "a source without its minimum": (
        create("one"), mutate("one", remove("x", "Place")), load("one", lives("1", "b", "x"), lives("2", "b", "y")),
        mutate("main", remove("a")), load("one", lives("3", "a", "z")), merge("one", "main"),
    ),
    "edges that lose their nodes": (
        load("main", knows("a", "a", id="k"), knows("b", "a", id="l")), create("one"), mutate("one", remove("a")),
        load("main", knows("a", "b", id="m")), merge("one", "main"), merge("main", "one"),
        mutate("main", remove("b"), remove("a")),
    ),
    "an overwrite that drops what others need": (
        load("main", mode="overwrite"), load("main", person("b"), mode="overwrite"),
        load("main", person("a", email=""), mode="overwrite"), load("main", person("a"), mode="append"),
        load("main", lives("9", "a", "x"), mode="overwrite"),
        load("main", lives("9", "a", "x"), lives("8", "a", "x"), mode="overwrite"),
    ),
    "an empty name, and names that are not there": (
        load("main", person("")), create("one"), mutate("one", remove("")), merge("one", "main"), merge("zz", "zz"),
        merge("zz", "main"), merge("main", "zz"), merge("main", "main"), delete("main"), create("main"),
        create("zz", "nowhere"), delete("zz"), mutate("zz", remove("a")), load("zz", person("c")),
    ),
    "changes that cancel out": (
        create("one"), load("one", person("c")), mutate("one", remove("c")), merge("one", "main"), merge("one", "main"),
        load("one", person("a")), merge("one", "main"), merge("main", "one"),
    ),
}  # fmt: skip


@pytest.mark.requirement(
    "LIN-13", "MRG-01", "MRG-02", "MRG-03", "MRG-06", "MRG-10", "MRG-12", "MRG-13", "BRA-12", "BRA-14", "BRA-17",
    "VAL-05", "VAL-06", "VAL-10", "DEL-02", "DEL-04", "LOD-09", "LOD-10", "EXP-06", "CHG-01", "SNP-04",
)  # fmt: skip
@pytest.mark.parametrize("name", SCRIPTS)
def test_the_sequence_means_the_same(tmp_path: Path, name: str) -> None:
    both = SideBySide(str(tmp_path / "graph"), SCHEMA)
    for each in (SETTLED, *SCRIPTS[name]):
        both.step(each)
    both.compare_histories()
