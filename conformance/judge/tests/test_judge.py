"""The judge notices: an engine that is right but for one thing, and the requirement that it is said to break."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from conformance.adapters import EngineError, Unsupported
from conformance.judge import Case, Engine, JudgedGraph, RequirementBroken, proving
from conformance.judge.broken import running
from conformance.judge.compare import conflicts_of, first_difference, misread
from conformance.runner.tests.engines import Sound
from conformance.suites.graphs import PEOPLE, SOCIAL, delete, insert, person, update, where


class Bent(Sound):
    """The reference, with one operation bent."""

    bend: Any = None

    def ask(self, op: str, args: Mapping[str, Any]) -> Any:
        bend = type(self).bend
        return super().ask(op, args) if bend is None else bend(super().ask, op, dict(args))


@pytest.fixture
def graph(tmp_path: Path) -> JudgedGraph:
    Bent.bend = None
    engine = Engine.connect(f"python:{__name__}:Bent", env={})
    graph = JudgedGraph.init(engine, str(tmp_path / "graph"), {}, SOCIAL)
    graph.load(PEOPLE)
    graph.branch_create("feature")
    graph.mutate(update("Person", where("name", "bob"), age=50), branch="feature")
    return graph


def drops_nulls(ask: Any, op: str, args: dict[str, Any]) -> Any:
    answer = ask(op, args)
    if op == "export":
        answer["data"] = answer["data"].replace(',"email":null', "")
    return answer


def accepts_everything(ask: Any, op: str, args: dict[str, Any]) -> Any:
    try:
        return ask(op, args)
    except EngineError:
        return {"affected_nodes": 0, "affected_edges": 0, "commit": None}


def refuses_updates(ask: Any, op: str, args: dict[str, Any]) -> Any:
    if op == "mutate":
        raise EngineError("bad_request", "no", "not today", {}, None)
    return ask(op, args)


def calls_it_internal(ask: Any, op: str, args: dict[str, Any]) -> Any:
    try:
        return ask(op, args)
    except EngineError as error:
        raise EngineError("internal", error.code, error.message, error.details, error.hint) from None


def leaks_to_main(ask: Any, op: str, args: dict[str, Any]) -> Any:
    answer = ask(op, args)
    if op == "mutate" and args.get("branch") == "feature":
        ask(op, {**args, "branch": "main"})
    return answer


def forgets_the_actor(ask: Any, op: str, args: dict[str, Any]) -> Any:
    answer = ask(op, {name: value for name, value in args.items() if name != "actor"})
    return answer


def hides_a_branch(ask: Any, op: str, args: dict[str, Any]) -> Any:
    answer = ask(op, args)
    return {"branches": ["main"]} if op == "branch_list" else answer


def forgets_the_source(ask: Any, op: str, args: dict[str, Any]) -> Any:
    answer = ask(op, args)
    if op == "merge" and answer["commit"]:
        del answer["commit"]["merged_parent_commit_id"]
    return answer


ADULT = where("name", "ann")


@pytest.mark.parametrize(
    ("bend", "work", "ids"),
    [
        (drops_nulls, lambda graph: graph.mutate(update("Person", ADULT, age=2)), {"MUT-04"}),
        (accepts_everything, lambda graph: graph.mutate(insert("Person", name="x", email="ann@x")), {"VAL-06"}),
        (accepts_everything, lambda graph: graph.mutate(insert("Person", name="x", age="old")), {"LOD-14"}),
        (refuses_updates, lambda graph: graph.mutate(update("Person", ADULT, age=2)), {"MUT-04"}),
        (calls_it_internal, lambda graph: graph.mutate(insert("Nobody", name="x")), {"LOD-02"}),
        (leaks_to_main, lambda graph: graph.mutate(delete("Person", ADULT), branch="feature"), {"BRA-08"}),
        (forgets_the_actor, lambda graph: graph.load([person("x")], actor="ann"), {"LIN-14"}),
        (hides_a_branch, lambda graph: graph.load([person("x")]), {"BRA-04"}),
        (forgets_the_source, lambda graph: graph.merge("feature"), {"LIN-09"}),
    ],
)
def test_an_engine_that_is_bent_breaks_a_requirement(graph: JudgedGraph, bend: Any, work: Any, ids: set[str]) -> None:
    Bent.bend = staticmethod(bend)
    try:
        with pytest.raises(RequirementBroken) as caught:
            work(graph)
    finally:
        Bent.bend = None

    assert ids <= set(caught.value.ids), caught.value.because


def test_a_sound_engine_breaks_nothing(graph: JudgedGraph) -> None:
    graph.merge("feature")
    with pytest.raises(EngineError):
        graph.mutate(insert("Person", name="x", email="ann@x"))
    graph.optimize()
    graph.cleanup(keep_versions=1)
    graph.reopen()
    graph.audit()


def has_no_mutations(ask: Any, op: str, args: dict[str, Any]) -> Any:
    if op == "mutate":
        raise Unsupported("mutate", "not today")
    return ask(op, args)


def test_what_an_engine_does_not_have_the_model_does_not_do_either(graph: JudgedGraph) -> None:
    Bent.bend = has_no_mutations
    with pytest.raises(Unsupported):
        graph.mutate(insert("Person", name="new"))
    Bent.bend = None

    graph.load([person("dan")])
    graph.compare("the end", "MUT-08")


def opens_to_write(ask: Any, op: str, args: dict[str, Any]) -> Any:
    if op == "open" and args.get("read_only"):
        raise Unsupported("open", "only to write")
    return ask(op, args)


@pytest.mark.parametrize("bend", [None, opens_to_write])
def test_a_look_is_read_only_where_an_engine_can_do_that(graph: JudgedGraph, bend: Any) -> None:
    Bent.bend = bend

    handle = graph.engine.look(graph.uri, branch="feature")

    assert handle.export() == graph.model.export("feature")
    if bend is None:
        with pytest.raises(EngineError):
            handle.mutate(insert("Person", name="new"))
    else:
        handle.mutate(insert("Person", name="new"))


def test_what_the_auditor_finds_breaks_what_it_names(graph: JudgedGraph) -> None:
    ir = Path(graph.uri, "_schema.ir.json")
    ir.write_text(ir.read_text(encoding="utf-8").replace("Person", "Peon"), encoding="utf-8")

    with pytest.raises(RequirementBroken) as caught:
        graph.audit()

    assert "LAY-11" in caught.value.ids


def test_a_step_that_is_left_proves_and_one_that_fails_breaks() -> None:
    case = Case("test", ("LAY-01", "LAY-02", "LAY-03"))

    with running(case), proving("LAY-01"):
        pass
    with running(case), pytest.raises(AssertionError), proving("LAY-02"):
        raise AssertionError("no")

    assert (case.proved, case.broke, case.blamed()) == ({"LAY-01"}, {"LAY-02"}, ("LAY-02", "LAY-03"))


def test_calls_are_recorded_with_the_test_and_long_texts_are_cut(graph: JudgedGraph) -> None:
    case = Case("test", ("LAY-01",))

    with running(case):
        graph.handle.load(json.dumps(person("long", email="x" * 5000)))

    (recorded,) = case.operations
    assert recorded["op"] == "load" and "commit" in recorded["ok"]
    assert len(recorded["args"]["data"]) < 2100 and "characters" in recorded["args"]["data"]


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ("a\nb\n", None),
        ("b\na\n", "another order, first at line 1"),
        ("a\n", "1 expected and not there, such as b"),
        ("a\nb\nb\n", "1 there and not expected, such as b"),
    ],
)
def test_the_first_difference_is_said_in_words(found: str, words: str | None) -> None:
    difference = first_difference(found, "a\nb\n")

    assert difference == words if words is None else difference is not None and words in difference


ROW: Final = '{"type":"V","data":{"id":"a","big":9007199254740993,"d":2.7715077941825975e-163,"file":"base64:"}}\n'


@pytest.mark.parametrize(
    ("found", "requirement"),
    [
        (ROW.replace("5975e-163", "5978e-163"), "LOD-14"),
        (ROW.replace('"base64:"', "null"), "EXP-06"),
        (ROW.replace("5975e-163", "6975e-163"), None),
        (ROW.replace("993", "992"), None),
        (ROW.replace("5975e-163", "5978e-163").replace('"base64:"', "null"), None),
        (ROW + ROW.replace('"a"', '"b"'), None),
    ],
    ids=["last digits", "no bytes", "other digits", "an integer", "two things", "a row more"],
)
def test_what_differs_in_values_of_one_kind_only_is_about_these(found: str, requirement: str | None) -> None:
    assert misread(found, ROW) == requirement


def test_an_export_that_follows_a_reference_and_fails_is_about_references(tmp_path: Path) -> None:
    def follows(ask: Any, op: str, args: dict[str, Any]) -> Any:
        answer = ask(op, args)
        if op == "export" and "memory://" in answer["data"]:
            raise EngineError("storage", "no", "nobody answers there", {}, None)
        return answer

    Bent.bend = None
    engine = Engine.connect(f"python:{__name__}:Bent", env={})
    graph = JudgedGraph.init(engine, str(tmp_path / "graph"), {}, "node V {\n  k: String @key\n  v: Blob?\n}\n")
    Bent.bend = staticmethod(follows)

    graph.load([{"type": "V", "data": {"k": "a", "v": "base64:AA=="}}])
    with pytest.raises(RequirementBroken, match="after load the branch 'main' cannot be exported") as broken:
        graph.load([{"type": "V", "data": {"k": "b", "v": "memory://pictures/b"}}])
    assert broken.value.ids == ("LAY-16",)


def test_only_a_branch_that_could_be_read_has_lost_what_it_read(graph: JudgedGraph) -> None:
    def fails(ask: Any, op: str, args: dict[str, Any]) -> Any:
        if op == "export" and args.get("branch") in ("new", "feature"):
            raise EngineError("storage", "no", "not here", {}, None)
        return ask(op, args)

    Bent.bend = staticmethod(fails)
    with pytest.raises(RequirementBroken, match="'feature' cannot be exported") as lost:
        graph.compare("a step", "SNP-02")
    graph.model.branch_delete("feature")
    graph.handle.branch_delete("feature")
    with pytest.raises(RequirementBroken, match="'new' cannot be exported") as never_there:
        graph.branch_create("new")

    assert lost.value.ids == ("SNP-02", "BRA-18")
    assert "BRA-18" not in never_there.value.ids


def test_which_of_two_rows_breaks_uniqueness_is_left_to_the_engine() -> None:
    one = {"conflicts": [{"table_key": "node:Person", "row_id": "a", "kind": "UniqueViolation"}]}
    other = {"conflicts": [{"table_key": "node:Person", "row_id": "b", "kind": "UniqueViolation"}]}

    assert conflicts_of(one) == conflicts_of(other)
