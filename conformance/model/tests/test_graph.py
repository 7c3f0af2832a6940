"""The model by example: what each operation means."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.model import Change, Model, Refusal
from conformance.model.tests.graphs import (
    PEOPLE,
    edge,
    ids,
    insert,
    ir,
    is_,
    knows,
    load,
    node,
    people,
    person,
    prop,
)


def refused(operation: Any, *args: Any, **kwargs: Any) -> str:
    with pytest.raises(Refusal) as refusal:
        operation(*args, **kwargs)
    return refusal.value.kind


@pytest.mark.requirement("EXP-01", "EXP-02", "EXP-04", "LIN-08", "MRG-01")
def test_a_graph_from_its_first_row_to_a_merge() -> None:
    model = Model(PEOPLE)
    assert model.export() == "" and [commit.parents for commit in model.commits()] == [()]

    load(model, person("Ann", 30), person("Bob"), knows("Ann", "Bob", id="k"))
    model.branch_create("feature")
    model.mutate([{"op": "update", "type": "Person", "where": is_("name", "Bob"), "set": {"age": 7}}], branch="feature")
    assert model.merge("feature", "main").outcome == "fast_forward"

    assert model.export() == (
        '{"edge":"Knows","from":"Ann","to":"Bob","data":{"id":"k"}}\n'
        '{"type":"Person","data":{"id":"Ann","age":30,"name":"Ann"}}\n'
        '{"type":"Person","data":{"id":"Bob","age":7,"name":"Bob"}}\n'
    )
    assert model.export(types=["Knows"]).count("\n") == model.export(tables=["edge:Knows"]).count("\n") == 1
    assert refused(model.export, types=["Nobody"]) == "bad_request"


@pytest.mark.requirement("LOD-06", "LOD-07", "LOD-08", "LOD-09", "LOD-10")
def test_the_three_modes_of_a_load() -> None:
    model = people()
    assert refused(load, model, person("Alice"), mode="append") == "bad_request"
    assert refused(load, model, person("Eve"), person("Eve")) == "bad_request"
    load(model, person("Eve"), mode="append")
    load(model, person("Alice", 1))
    assert model.entity_at("node:Person", "Alice") == {"id": "Alice", "age": 1, "name": "Alice"}
    assert refused(load, model, person("Eve"), mode="overwrite") == "bad_request", "Bob still knows Carol"
    load(model, person("Bob"), person("Carol"), mode="overwrite")
    assert ids(model, "node:Person") == ["Bob", "Carol"] and ids(model, "edge:Knows") == ["bc"]


@pytest.mark.requirement("LOD-02", "LOD-04", "LOD-05", "LOD-16", "LOD-17")
@pytest.mark.parametrize(
    "data",
    [
        '{"type":"Person"}',
        '{"type":"Person","data":{"name":"Ann","id":"Bob"}}',
        '{"type":"Person","data":{"name":"Ann","colour":"red"}}',
        '{"type":"Person","edge":"Knows","data":{"name":"Ann"}}',
        '{"type":"Person","data":{"name":"Ann"},"more":1}',
        '{"type":"Person","data":{"name":"Ann","name":"Bob"}}',
        '{"type":"Place","data":{"id":"","title":"home"}}',
        '{"edge":"Knows","from":"Alice"}',
        '{"type":"Nobody"}',
        '{"type":"Person","data":{"name":"Ann","age":NaN}}',
        "[1]",
        "// a comment",
        '{"type":',
    ],
)
def test_a_bad_record_is_refused_and_nothing_changes(data: str) -> None:
    model = people()
    before = model.export()
    assert refused(model.load, '{"type":"Person","data":{"name":"Eve"}}' + data, mode="merge") == "bad_request"
    assert model.export() == before


@pytest.mark.requirement("LOD-12", "LIN-04")
def test_a_load_makes_its_branch_from_the_base_and_leaves_it_when_refused() -> None:
    model = people()
    assert refused(model.load, "", mode="merge", branch="new") == "not_found"
    assert model.load("", mode="merge", branch="new", base="main").branch_created
    assert refused(model.load, "broken", mode="merge", branch="newer", base="new") == "bad_request"
    assert model.branch_list() == ["main", "new", "newer"]
    assert len(model.commits("new")) == len(model.commits("main")) + 1


@pytest.mark.requirement("MUT-03", "MUT-04", "MUT-05", "MUT-07", "MUT-10", "LIN-03")
def test_a_mutation_is_one_change_whose_statements_see_each_other() -> None:
    model = people()
    before, commits = model.export(), len(model.commits())
    eve, grown = insert(person("Eve", 1)), {"op": "update", "type": "Person", "where": is_("age", 1), "set": {"age": 2}}
    done = model.mutate([eve, grown, insert(knows("Eve", "Eve"))])
    assert (done.affected_nodes, done.affected_edges) == (2, 1)
    assert model.read("node:Person")[-1] == {"id": "Eve", "age": 2, "name": "Eve"}

    model = people()
    assert refused(model.mutate, [eve, insert(knows("Eve", "Nobody"))]) == "bad_request"
    assert refused(model.mutate, [eve, {"op": "delete", "type": "Person", "where": {"all": True}}]) == "bad_request"
    assert refused(model.mutate, [{**grown, "set": {"name": "Eve"}}]) == "bad_request"
    assert model.mutate([grown]).commit is None
    assert model.export() == before and len(model.commits()) == commits


@pytest.mark.requirement("DEL-02", "DEL-03", "MUT-11", "MUT-12")
def test_a_deleted_node_takes_its_edges_with_it_each_counted_once() -> None:
    model = people()
    load(model, knows("Carol", "Carol", id="cc"), knows("Dan", "Bob", id="db"))
    done = model.mutate([{"op": "delete", "type": "Person", "where": is_("id", name)} for name in ("Carol", "Bob")])
    assert (done.affected_nodes, done.affected_edges) == (2, 3)
    assert ids(model, "edge:Knows") == []
    assert model.mutate([{"op": "delete", "edge": "knows", "where": is_("from", "Dan")}]).affected_edges == 0


@pytest.mark.requirement("MUT-11", "VAL-16")
@pytest.mark.parametrize(
    "where, matched",
    [
        (is_("age", 30, "gt"), ["Bob"]),
        ({"not": is_("age", 30, "gt")}, ["Ann"]),
        (is_("age", None), []),
        (is_("age", [30, None], "in"), ["Ann"]),
        ({"not": is_("age", [31, None], "in")}, []),
        ({"property": "age", "op": "is_null"}, ["Cleo"]),
        ({"or": [is_("age", 30), is_("age", None)]}, ["Ann"]),
        ({"and": [is_("id", "Ann", "ne"), {"not": {"property": "age", "op": "is_null"}}]}, ["Bob"]),
        ({"all": True}, ["Ann", "Bob", "Cleo"]),
    ],
)
def test_a_predicate_is_true_false_or_unknown(where: Any, matched: list[str]) -> None:
    model = Model(PEOPLE)
    load(model, person("Ann", 30), person("Bob", 31), person("Cleo"))
    model.mutate([{"op": "delete", "type": "Person", "where": where}])
    assert sorted({"Ann", "Bob", "Cleo"} - set(ids(model, "node:Person"))) == matched


RULES = ir(
    node(
        "Person",
        prop("name", nullable=False),
        prop("age", "I64"),
        prop("mood", enum_values=["calm"], list=True),
        prop("email"),
        constraints=(
            {"Key": ["name"]},
            {"Unique": ["email"]},
            {"Range": {"property": "age", "min": {"Integer": 0}, "max": {"Integer": 9007199254740993}}},
            {"Check": {"property": "name", "pattern": "^[a-z$]+$"}},
        ),
    ),
    edge("Knows", "Person", "Person", low=1, high=2),
)


@pytest.mark.requirement("VAL-03", "VAL-04", "VAL-05", "VAL-06", "VAL-09", "VAL-16")
@pytest.mark.parametrize(
    "data",
    [
        {"name": "x", "age": -1},
        {"name": "x", "age": 9007199254740994},
        {"name": "x", "mood": ["calm", "wild"]},
        {"name": "x", "email": "taken"},
        {"name": "X"},
        {"name": "x\n"},
    ],
)
def test_a_row_that_breaks_a_rule_is_refused(data: dict[str, Any]) -> None:
    model = Model(RULES)
    load(model, {"type": "Person", "data": {"name": "ann", "email": "taken", "age": 9007199254740993}})
    load(model, {"type": "Person", "data": {"name": "bo$", "mood": ["calm", None]}})
    assert refused(load, model, {"type": "Person", "data": data}) == "bad_request"
    assert refused(model.mutate, [{"op": "insert", "type": "Person", "data": data}]) == "bad_request"


@pytest.mark.requirement("VAL-10", "DEL-04")
def test_cardinality_counts_the_edges_of_sources_that_have_or_had_some() -> None:
    model = Model(RULES)
    load(model, *({"type": "Person", "data": {"name": name}} for name in "ab"))
    load(model, knows("a", "b", id="1"), knows("a", "a", id="2"))
    assert refused(load, model, knows("a", "b", id="3")) == "bad_request"
    assert refused(load, model, knows("b", "b", id="1"), knows("b", "b", id="2")) == "bad_request", "a has none left"
    assert refused(model.mutate, [{"op": "delete", "edge": "Knows", "where": {"all": True}}]) == "bad_request"
    model.mutate([{"op": "delete", "type": "Person", "where": is_("name", "a")}])
    assert ids(model, "edge:Knows") == []


@pytest.mark.requirement("BRA-02", "BRA-03", "BRA-04", "BRA-08", "BRA-12", "BRA-16")
def test_branches_are_apart_and_are_deleted_from_the_leaves() -> None:
    model = people()
    model.branch_create(" one ")
    model.branch_create("one/sub", "one")
    load(model, person("Eve"), branch="one")
    assert "Eve" not in ids(model, "node:Person") + ids(model, "node:Person", "one/sub")
    assert model.branch_list() == ["main", "one", "one/sub"]
    assert refused(model.branch_create, "one") == "conflict"
    assert refused(model.branch_create, "two", "absent") == "not_found"
    for name in ("", "a b", "a//b", "a..b", "x.lock", "one/data", "__schema_apply_lock__", "x" * 201):
        assert refused(model.branch_create, name) == "bad_request"
    assert refused(model.branch_delete, "one") == "conflict"
    assert refused(model.branch_delete, "absent") == "not_found"
    model.branch_delete("one/sub")
    model.branch_delete("one")
    assert model.branch_list() == ["main"]


@pytest.mark.requirement("LIN-10", "SNP-04", "SNP-06", "DEL-07", "CHG-01", "CHG-03")
def test_old_commits_can_be_read_and_compared() -> None:
    model = people()
    model.identify(model.head(), "01H0", 4)
    load(model, person("Alice", 1))
    model.mutate([{"op": "delete", "type": "Person", "where": is_("name", "Bob")}])
    assert model.entity_at("node:Person", "Bob") is None
    assert model.entity_at("node:Person", "Bob", commit="01H0") == {"id": "Bob", "age": 31, "name": "Bob"}
    assert refused(model.state, commit="absent") == "not_found"
    assert model.diff(model.state(commit="01H0"), model.state()) == [
        Change("edge:Knows", "bc", "delete", ("Bob", "Carol")),
        Change("node:Person", "Alice", "update"),
        Change("node:Person", "Bob", "delete"),
    ]


@pytest.mark.requirement("LOD-05", "MUT-08")
def test_the_ids_that_an_engine_gave_are_learned_from_its_export() -> None:
    model = Model(PEOPLE)
    load(model, *({"type": "Place", "data": {"title": title}} for title in ("home", "home", "work")))
    lines = [
        f'{{"type":"Place","data":{{"id":"{row}","title":"{row[:-1]}"}}}}\n' for row in ("home1", "home2", "work1")
    ]
    model.learn_ids("main", "".join(lines))
    assert model.export() == "".join(lines)


@pytest.mark.requirement("OPT-01")
def test_maintenance_is_a_commit_that_changes_nothing() -> None:
    model = people()
    model.branch_create("one")
    before = model.export()
    model.maintain("main")
    assert model.export() == before
    assert model.merge("one", "main").outcome == "already_up_to_date"
    assert model.merge("main", "one").outcome == "fast_forward"
