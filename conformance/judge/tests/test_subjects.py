"""What an operation is a case of: a failure there breaks the requirement that speaks of just that."""

from __future__ import annotations

import json
from typing import Any

import pytest

from conformance.judge.subjects import subject_of
from conformance.model import Model

SCHEMA = """
node Person {
  name: String @key
  age: I32?
  tags: [String]?
  photo: Blob?
  born: Date?
  exists: String?
}
node Pair {
  a: String
  b: String
  @key(a, b)
}
node Count {
  number: I64 @key
}
"""


def person(name: str, **data: Any) -> dict[str, Any]:
    return {"type": "Person", "data": {"name": name, **data}}


def text(*records: dict[str, Any]) -> str:
    return "\n".join(map(json.dumps, records))


@pytest.fixture
def model() -> Model:
    made = Model.from_source(SCHEMA)
    made.load(text(person("ann", tags=["a", "b"], photo="base64:AAEC"), person("bob")), mode="append")
    made.branch_create("x", "main")
    return made


def merging(model: Model, source: str = "x", target: str = "main") -> Any:
    return subject_of(model, "merge", {"source": source, "target": target})


def test_a_merge_of_a_change_is_nothing_special(model: Model) -> None:
    model.load(text(person("cat")), mode="append", branch="x")

    assert merging(model).when_refused("internal") == "MRG-12"
    assert merging(model).when_done("merge_conflicts") == "MRG-02"


def test_a_merge_of_what_is_there_already_is_net_zero(model: Model) -> None:
    model.load(text(person("ann", tags=["a", "b"], photo="base64:AAEC")), mode="merge", branch="x")

    assert merging(model).when_refused("internal") == "MRG-10"


@pytest.mark.parametrize("change", [{"tags": ["a, b"]}, {"photo": "base64:AAED"}], ids=["list", "blob"])
def test_a_change_that_a_careless_text_hides_is_about_values(model: Model, change: dict[str, Any]) -> None:
    model.load(text(person("ann", **{"tags": ["a", "b"], "photo": "base64:AAEC", **change})), mode="merge", branch="x")

    assert merging(model).when_refused("internal") == "MRG-13"
    assert merging(model).otherwise == "MRG-13"


def test_changes_that_look_the_same_and_are_not_must_conflict_as_values(model: Model) -> None:
    model.load(text(person("bob", tags=["a", "b"])), mode="merge", branch="x")
    model.load(text(person("bob", tags=["a, b"])), mode="merge")

    assert merging(model).when_done("merge_conflicts") == "MRG-13"


def test_where_steps_and_descent_find_other_bases_the_base_is_to_blame(model: Model) -> None:
    model.load(text(person("cat")), mode="append", branch="x")
    model.branch_create("y", "x")
    model.load(text(person("dan")), mode="append", branch="y")
    model.merge("y", "main")

    assert merging(model).otherwise == "LIN-13"
    assert merging(model).when_refused("conflict") == "LIN-13"
    assert merging(model).when_refused("storage") == "MRG-12"


@pytest.mark.parametrize(
    ("record", "requirement"),
    [
        (person("cat"), "LOD-06"),
        ({"type": "Pair", "data": {"a": "1", "b": "2"}}, "VAL-14"),
        ({"type": "Count", "data": {"number": 7}}, "LOD-17"),
        (person("cat", photo="base64:"), "EXP-06"),
        (person("cat", photo="s3://pictures/cat"), "LAY-16"),
        (person("cat", age="old"), "LOD-06"),
    ],
)
def test_loads_are_told_apart_by_their_keys_and_blobs(model: Model, record: dict[str, Any], requirement: str) -> None:
    subject = subject_of(model, "load", {"mode": "append", "data": text(record)})

    assert subject.otherwise == requirement


@pytest.mark.parametrize(
    ("name", "value", "requirement"),
    [("name", "ann", "DEL-02"), ("born", "2024-01-01", "VAL-16"), ("exists", "y", "VAL-16"), ("age", 2**60, "VAL-16")],
)
def test_predicates_are_told_apart_by_type_and_name(model: Model, name: str, value: Any, requirement: str) -> None:
    where = {"not": {"property": name, "op": "eq", "value": value}}
    subject = subject_of(model, "mutate", {"statements": [{"op": "delete", "type": "Person", "where": where}]})

    assert subject.when_refused("internal") == requirement


def test_rules_on_numbers_that_a_double_does_not_tell_apart_must_be_exact(model: Model) -> None:
    plain, large = (
        subject_of(model, "load", {"mode": "append", "data": text({"type": "Count", "data": {"number": number}})})
        for number in (7, 2**53 + 1)
    )

    assert plain.when_done("ValueConstraintViolation") == "VAL-04"
    assert large.when_done("ValueConstraintViolation") == "VAL-16"


@pytest.mark.parametrize(
    ("old", "new", "requirement"),
    [
        ("age: I32?", 'years: I32? @rename_from("age")', "SCH-08"),
        ("age: I32?", 'years: I32? @rename_from("age")\n  age: I32?', "SCH-19"),
        ("node Count {", 'node Sum @rename_from("Count") {', "SCH-08"),
        ("node Count {", 'node Count {\n  name: String @key\n}\nnode Sum @rename_from("Count") {', "SCH-19"),
    ],
)
def test_a_name_that_is_freed_and_used_again_in_one_plan(model: Model, old: str, new: str, requirement: str) -> None:
    model.branch_delete("x")

    subject = subject_of(model, "schema_apply", {"source": SCHEMA.replace(old, new)})

    assert {subject.refused, subject.otherwise} == {requirement}
    assert subject.when_done("schema_change_unsupported") == "SCH-05"


def test_a_type_under_the_name_of_a_dropped_one_is_a_known_gap_and_may_be_refused(model: Model) -> None:
    model.branch_delete("x")
    without = SCHEMA.replace("node Count {\n  number: I64 @key\n}\n", "")
    assert not subject_of(model, "schema_apply", {"source": without}).is_open("internal")
    model.schema_apply(without)

    again = subject_of(model, "schema_apply", {"source": SCHEMA})

    assert again.when_refused("internal") == "SCH-15"
    assert again.is_open("internal")


def test_a_store_that_fails_under_a_write_to_a_branch_of_a_branch_is_about_such_branches(model: Model) -> None:
    model.branch_create("y", "x")

    written = {
        branch: subject_of(model, "load", {"mode": "merge", "branch": branch, "data": ""}) for branch in ("x", "y")
    }

    assert written["x"].when_refused("storage") == "LOD-08"
    assert written["y"].when_refused("storage") == "BRA-17"
    assert written["y"].when_refused("bad_request") == "LOD-08"


def test_a_branch_that_has_merged_another_one_stands_on_it_as_well(model: Model) -> None:
    model.branch_create("y")
    model.mutate([{"op": "insert", "type": "Person", "data": {"name": "new"}}], branch="x")
    before = subject_of(model, "mutate", {"statements": [], "branch": "y"})
    model.merge("x", "y")

    after = subject_of(model, "mutate", {"statements": [], "branch": "y"})

    assert (before.when_refused("storage"), after.when_refused("storage")) == ("MUT-08", "BRA-17")
    model.merge("x", "main")
    model.branch_create("z")
    assert subject_of(model, "mutate", {"statements": [], "branch": "z"}).when_refused("storage") == "MUT-08"


def test_an_update_of_what_the_mutation_wrote_is_about_one_row_and_about_seeing_it(model: Model) -> None:
    again = {"op": "update", "type": "Person", "where": {"all": True}, "set": {}}
    twice = subject_of(model, "mutate", {"statements": [again, again]})
    once = subject_of(model, "mutate", {"statements": [{"op": "insert", "type": "Other"}, again]})

    assert (twice.when_refused("bad_request"), twice.otherwise) == ("MUT-07", "MUT-04")
    assert (once.when_refused("bad_request"), once.otherwise) == ("MUT-08", "MUT-08")


def test_what_an_overwrite_drops_is_deleted(model: Model) -> None:
    for mode, requirement in (("overwrite", "LOD-10"), ("merge", "VAL-10")):
        subject = subject_of(model, "load", {"mode": mode, "data": text(person("ann"))})
        assert subject.when_done("CardinalityViolation") == requirement


def test_a_load_into_a_new_branch_knows_what_it_is_made_from(model: Model) -> None:
    for base, requirement in (("x", "BRA-17"), ("main", "LOD-12")):
        subject = subject_of(model, "load", {"mode": "merge", "data": "", "branch": "new", "base": base})
        assert subject.when_refused("storage") == requirement
        assert subject.when_refused("not_found") == "LOD-12", "the branch is to be made first"
