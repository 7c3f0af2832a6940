"""SCH: what a schema change is planned as, in which order, and what of it is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pytest

from conformance.audit.names import SCHEMA_FILES, STAGING_FILES
from conformance.judge import proving
from conformance.runner.plugin import ForgeOf, Judged
from conformance.suites.graphs import PEOPLE, SOCIAL, insert
from conformance.suites.refusals import refused

CITY = "node City {\n  name: String @key\n}\n"
LIVES_IN = "edge LivesIn: Person -> City\n"
WITHOUT_WORK = SOCIAL.replace("edge WorksAt: Person -> Company @card(0..2)\n", "")
WITHOUT_COMPANY = WITHOUT_WORK.replace("node Company {\n  name: String @key\n}\n", "")
WITHOUT_AGE = SOCIAL.replace("  age: I32?\n", "")
WITH_NOTE = SOCIAL.replace("age: I32?", "age: I32?\n  note: String?")
WITH_INDEX = SOCIAL.replace("age: I32?", "age: I32? @index")


def renamed(old: str, new: str) -> str:
    return SOCIAL.replace(old, new)


FIRM = SOCIAL.replace("node Company {", 'node Firm @rename_from("Company") {').replace("-> Company", "-> Firm")
FRIENDS = SOCIAL.replace("edge Knows: Person -> Person {", 'edge Likes: Person -> Person @rename_from("Knows") {')
YEARS = renamed("age: I32?", 'years: I32? @rename_from("age")')

Step = tuple[str, str, str]
PLANS: dict[str, tuple[str, list[Step]]] = {
    "nothing": (SOCIAL, []),
    "another-order": (CITY.replace("City", "Company") + SOCIAL.replace(CITY.replace("City", "Company"), ""), []),
    "comments": ("// a comment\n" + SOCIAL.replace("}\n", "}\n\n"), []),
    "add-types": (
        SOCIAL + CITY + LIVES_IN,
        [("add_type", "node", "City"), ("add_type", "edge", "LivesIn")],
    ),
    "add-interface": (SOCIAL + "interface Named {\n  name: String\n}\n", [("add_type", "interface", "Named")]),
    "add-property": (WITH_NOTE, [("add_property", "node", "Person")]),
    "add-edge-property": (
        SOCIAL.replace("since: I32?", "since: I32?\n  how: String?"),
        [("add_property", "edge", "Knows")],
    ),
    "add-index": (WITH_INDEX, [("add_constraint", "node", "Person")]),
    "rename-type": (FIRM, [("rename_type", "node", "Firm")]),
    "rename-edge": (FRIENDS, [("rename_type", "edge", "Likes")]),
    "rename-property": (YEARS, [("rename_property", "node", "Person")]),
    "drop-property": (WITHOUT_AGE, [("drop_property", "node", "Person")]),
    "drop-types": (WITHOUT_COMPANY, [("drop_type", "node", "Company"), ("drop_type", "edge", "WorksAt")]),
    "describe-type": (
        renamed("node Company {", 'node Company @description("who pays") {'),
        [("update_type_metadata", "node", "Company")],
    ),
    "describe-property": (
        renamed("age: I32?", 'age: I32? @description("in years")'),
        [("update_property_metadata", "node", "Person")],
    ),
}


def told(steps: Sequence[Mapping[str, Any]]) -> list[Step]:
    return [(str(step["kind"]), str(step["type_kind"]), str(step["type_name"])) for step in steps]


@pytest.mark.requirement("SCH-03", "SCH-04")
@pytest.mark.parametrize(("source", "steps"), PLANS.values(), ids=list(PLANS))
def test_a_plan_names_the_steps_in_a_fixed_order_and_changes_nothing(
    judged: Judged, forge: ForgeOf, source: str, steps: list[Step]
) -> None:
    graph = judged(SOCIAL)
    listing = forge(graph.uri).listing()

    with proving("SCH-03"):
        plan = graph.handle.schema_plan(source)
        assert sorted(told(plan["steps"])) == sorted(steps)
        assert plan["supported"] is True
        assert graph.handle.schema_plan(source) == plan, "the same plan in another order"
        assert graph.engine.open(graph.uri).schema_plan(source) == plan
        assert forge(graph.uri).listing() == listing, "a plan has written something"
    if not steps:
        with proving("SCH-04"):
            version, commits = forge(graph.uri).manifest_version(), graph.handle.commits()
            answer = graph.handle.schema_apply(source)
            assert (answer["supported"], answer["applied"], answer["steps"]) == (True, False, [])
            assert answer.get("commit") is None
            assert forge(graph.uri).manifest_version() == version and graph.handle.commits() == commits
            assert forge(graph.uri).branches() == []
    else:
        graph.schema_apply(source)
        assert graph.handle.schema_plan(source)["steps"] == [], "what was applied is still to be done"


@pytest.mark.requirement("SCH-03")
def test_a_plan_does_not_depend_on_the_order_of_the_source(judged: Judged) -> None:
    graph = judged(SOCIAL)
    parts = [CITY, LIVES_IN, "node Alpha {\n  name: String @key\n}\n", "node Beta {\n  name: String @key\n}\n"]

    with proving("SCH-03"):
        first = graph.handle.schema_plan(WITH_NOTE + "".join(parts))
        assert graph.handle.schema_plan("".join(reversed(parts)) + WITH_NOTE) == first
        assert len(first["steps"]) == 5


@pytest.mark.requirement("SCH-03")
@pytest.mark.parametrize(("allow_data_loss", "mode"), [(False, "soft"), (True, "hard")])
def test_a_drop_says_whether_data_is_lost(judged: Judged, allow_data_loss: bool, mode: str) -> None:
    graph = judged(SOCIAL)

    with proving("SCH-03"):
        for source in (WITHOUT_AGE, WITHOUT_COMPANY):
            plan = graph.handle.schema_plan(source, allow_data_loss=allow_data_loss)
            assert {step["mode"] for step in plan["steps"]} == {mode}


UNSUPPORTED = {
    "required-property": SOCIAL.replace("age: I32?", "age: I32?\n  note: String"),
    "nullable-to-required": SOCIAL.replace("age: I32?", "age: I32"),
    "edge-property-required": SOCIAL.replace("since: I32?", "since: I32"),
    "wider-number": SOCIAL.replace("age: I32?", "age: I64?"),
    "text-for-a-number": SOCIAL.replace("age: I32?", "age: String?"),
    "list-for-a-value": SOCIAL.replace("age: I32?", "age: [I32]?"),
    "unique-taken-away": SOCIAL.replace("email: String? @unique", "email: String?"),
    "key-taken-away": SOCIAL.replace("node Company {\n  name: String @key", "node Company {\n  name: String"),
    "unique-added": SOCIAL.replace("age: I32?", "age: I32? @unique"),
    "range-added": SOCIAL.replace("age: I32?", "age: I32?\n  @range(age, 0..150)"),
    "check-added": SOCIAL.replace("age: I32?", 'age: I32?\n  @check(name, "^[a-z]+$")'),
    "cardinality-changed": SOCIAL.replace("@card(0..2)", "@card(0..1)"),
    "other-endpoint": SOCIAL.replace("edge WorksAt: Person -> Company", "edge WorksAt: Person -> Person"),
    "renamed-from-nothing": SOCIAL.replace("age: I32?", 'years: I32? @rename_from("aeg")'),
    "type-renamed-from-nothing": FIRM.replace('@rename_from("Company")', '@rename_from("Compani")'),
    "renamed-twice": SOCIAL.replace("age: I32?", 'a1: I32? @rename_from("age")\n  a2: I32? @rename_from("age")'),
    "renamed-and-retyped": SOCIAL.replace("age: I32?", 'years: I64? @rename_from("age")'),
    "good-and-bad": WITH_NOTE.replace("email: String? @unique", "email: String?") + CITY,
}


@pytest.mark.requirement("SCH-05", "SCH-01")
@pytest.mark.parametrize("source", UNSUPPORTED.values(), ids=list(UNSUPPORTED))
def test_what_cannot_be_done_to_existing_rows_is_refused_and_nothing_changes(
    judged: Judged, forge: ForgeOf, source: str
) -> None:
    graph = judged(SOCIAL, PEOPLE)
    anvil = forge(graph.uri)
    entries, version = anvil.entries(), anvil.manifest_version()
    files = anvil.photograph(*SCHEMA_FILES)

    with proving("SCH-05"):
        plan = graph.handle.schema_plan(source)
        assert plan["supported"] is False
        assert "unsupported_change" in {step["kind"] for step in plan["steps"]}
        refused("bad_request", lambda: graph.handle.schema_apply(source), "a change that is not supported")
        refused("bad_request", lambda: graph.handle.schema_apply(source, allow_data_loss=True), "the same with force")
        assert (anvil.entries(), anvil.manifest_version(), anvil.photograph(*SCHEMA_FILES)) == (entries, version, files)
        assert anvil.sidecars() == {} and all(anvil.read(name) is None for name in STAGING_FILES)
        graph.compare("a refused schema apply", "SCH-05")
    with proving("SCH-01"):
        assert anvil.branches() == [], "the lock of a refused apply is still there"
        graph.mutate(insert("Person", name="zoe"))


@pytest.mark.requirement("SCH-05", "VAL-13")
def test_a_schema_that_does_not_parse_is_refused_and_nothing_changes(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL)
    listing = forge(graph.uri).listing()

    for requirement, source in (("SCH-05", "node {"), ("VAL-13", SOCIAL + "edge Bad: Person -> Nobody\n")):
        with proving(requirement):
            refused("bad_request", partial(graph.handle.schema_apply, source), "a broken schema")
            refused("bad_request", partial(graph.handle.schema_plan, source), "its plan")
            assert forge(graph.uri).listing() == listing
