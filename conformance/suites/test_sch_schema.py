"""SCH: what a schema apply does to rows and tables, and who it needs out of its way."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from conformance.adapters import EngineError
from conformance.audit.names import LOCK_BRANCH, SCHEMA_FILES, STAGING_FILES, fnv1a_64
from conformance.judge import Engine, proving
from conformance.runner.plugin import ForgeOf, Judged, Peers
from conformance.suites.graphs import PEOPLE, SOCIAL, insert, insert_edge, lines, node, person
from conformance.suites.refusals import refused

PERSON, COMPANY, KNOWS, WORKS_AT = "node:Person", "node:Company", "edge:Knows", "edge:WorksAt"
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

# -- what is done ------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("SCH-08", "SCH-10")
def test_a_new_property_rewrites_its_table_once_and_is_null(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, PEOPLE)
    anvil = forge(graph.uri)
    before = anvil.entries()
    heads = {key: anvil.head(key) for key in before}

    answer = graph.schema_apply(WITH_NOTE + CITY)

    with proving("SCH-08"):
        after = anvil.entries()
        assert after[PERSON].version == heads[PERSON] + 1 == anvil.head(PERSON), "one rewrite is one version"
        assert {key for key in before if after[key] != before[key]} == {PERSON}, "another table was touched"
        assert {row["id"]: row["note"] for row in graph.handle.read(PERSON)} == dict.fromkeys(("ann", "bob", "cat"))
        city = graph.handle.table("node:City")
        assert (city["table_version"], city["row_count"], city["table_path"]) == (1, 0, f"nodes/{fnv1a_64('City')}")
        assert anvil.head("node:City") == 1
        graph.mutate(insert("Person", name="dan", note="new"), insert("City", name="Rome"))
        refused("bad_request", lambda: graph.handle.mutate(insert("City", name="x", nope=1)), "an unknown property")
    with proving("SCH-10"):
        assert answer["commit"].get("actor_id") is None, "a schema apply has no actor"
        assert anvil.sidecars() == {} and all(anvil.read(name) is None for name in STAGING_FILES)
        assert anvil.branches() == []
        assert anvil.read("_schema.pg") == (WITH_NOTE + CITY).encode()


@pytest.mark.requirement("SCH-06")
def test_a_renamed_type_moves_its_rows_to_the_path_of_its_new_name(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, PEOPLE)
    anvil = forge(graph.uri)
    old, version = anvil.entries()[COMPANY], anvil.manifest_version()

    graph.schema_apply(FIRM)

    with proving("SCH-06"):
        entries = anvil.entries()
        assert COMPANY not in entries
        assert entries["node:Firm"].path == f"nodes/{fnv1a_64('Firm')}"
        assert anvil.decoded().tombstones[COMPANY] == old.version + 1
        assert [row["id"] for row in graph.handle.read("node:Firm")] == ["acme"]
        assert [row["id"] for row in graph.handle.read(COMPANY, version=version)] == ["acme"]
        refused("not_found", lambda: graph.handle.read(COMPANY), "the old name")
        graph.mutate(insert("Firm", name="beta"), insert_edge("WorksAt", "bob", "beta"))
        refused("bad_request", lambda: graph.handle.mutate(insert("Company", name="x")), "a write to the old name")


@pytest.mark.requirement("SCH-06")
def test_a_renamed_edge_type_keeps_its_edges(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, PEOPLE)
    old = forge(graph.uri).entries()[KNOWS]

    graph.schema_apply(FRIENDS)

    with proving("SCH-06"):
        assert forge(graph.uri).entries()["edge:Likes"].path == f"edges/{fnv1a_64('Likes')}"
        assert forge(graph.uri).decoded().tombstones[KNOWS] == old.version + 1
        assert [(row["id"], row["since"]) for row in graph.handle.read("edge:Likes")] == [("k1", 2020), ("k2", None)]


@pytest.mark.requirement("SCH-06")
def test_a_renamed_property_keeps_its_values(judged: Judged) -> None:
    graph = judged(SOCIAL, PEOPLE)
    version = graph.handle.snapshot()["manifest_version"]

    graph.schema_apply(YEARS)

    with proving("SCH-06"):
        now = {row["id"]: row.get("years") for row in graph.handle.read(PERSON)}
        assert now == {"ann": 30, "bob": 31, "cat": None}
        assert all("age" not in row for row in graph.handle.read(PERSON))
        assert graph.handle.read(PERSON, version=version)[0]["age"] == 30
        graph.schema_apply(YEARS.replace(' @rename_from("age")', ""))  # The note of a rename may go.
        assert graph.handle.read(PERSON)[0]["years"] == 30


@pytest.mark.requirement("SCH-07")
def test_a_soft_drop_hides_and_keeps(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, PEOPLE)
    anvil = forge(graph.uri)
    old, version = anvil.entries(), anvil.manifest_version()
    files = {name for name in anvil.list() if name.startswith((old[COMPANY].path, old[WORKS_AT].path))}

    graph.schema_apply(WITHOUT_COMPANY.replace("  age: I32?\n", ""))

    with proving("SCH-07"):
        tombstones = anvil.decoded().tombstones
        assert (tombstones[COMPANY], tombstones[WORKS_AT]) == (old[COMPANY].version + 1, old[WORKS_AT].version + 1)
        assert files <= set(anvil.list()), "a soft drop has removed files"
        refused("not_found", lambda: graph.handle.read(COMPANY), "a dropped type")
        assert all("age" not in row for row in graph.handle.read(PERSON))
        assert [row["id"] for row in graph.handle.read(COMPANY, version=version)] == ["acme"]
        assert [row["id"] for row in graph.handle.read(WORKS_AT, version=version)] == ["w1"]
        assert [row["age"] for row in graph.handle.read(PERSON, version=version)] == [30, 31, None]


@pytest.mark.requirement("SCH-07")
def test_a_hard_drop_removes_the_old_versions(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, PEOPLE)
    graph.mutate(insert("Company", name="beta"), insert("Person", name="dan", age=9))
    anvil = forge(graph.uri)
    old = anvil.entries()

    graph.schema_apply(WITHOUT_COMPANY.replace("  age: I32?\n", ""), allow_data_loss=True)

    with proving("SCH-07"):
        assert anvil.decoded().tombstones[COMPANY] == old[COMPANY].version + 1
        for key in (PERSON, COMPANY):
            versions = [each["version"] for each in anvil.storage(key).versions()]
            assert versions == [max(versions)], f"{key} still has the versions {versions}"
        assert "age" not in anvil.storage(PERSON).schema.names
        assert anvil.list(old[COMPANY].path), "the directory of a dropped type stays"
        graph.mutate(insert("Person", name="eve"))
        graph.reopen()


@pytest.mark.requirement("SCH-09")
def test_a_change_of_indexes_touches_no_table_and_builds_none(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, PEOPLE)
    anvil = forge(graph.uri)
    entries = anvil.entries()
    heads = {key: (anvil.head(key), anvil.indices(key)) for key in entries}
    files = {name: stat for name, stat in anvil.listing().items() if name.startswith(("nodes/", "edges/"))}

    answer = graph.schema_apply(WITH_INDEX)

    with proving("SCH-09"):
        assert answer["applied"] is True
        assert anvil.entries() == entries
        assert {key: (anvil.head(key), anvil.indices(key)) for key in entries} == heads
        now = {name: stat for name, stat in anvil.listing().items() if name.startswith(("nodes/", "edges/"))}
        assert now == files
        graph.schema_apply(WITH_INDEX + CITY.replace("@key", "@key @index"))
        assert anvil.indices("node:City") == []


RENAMES: dict[str, tuple[str, dict[str, int | None]]] = {
    "freed-and-used-again": ('older: I32? @rename_from("age")\n  age: I32?', {"older": 30, "age": None}),
    "chain": ('b: I32? @rename_from("a")\n  c: I32? @rename_from("b")', {"b": 1, "c": 2}),
    "swap": ('a: I32? @rename_from("b")\n  b: I32? @rename_from("a")', {"a": 2, "b": 1}),
}


@pytest.mark.requirement("SCH-19")
@pytest.mark.parametrize("name", list(RENAMES))
def test_renames_in_one_plan_compose_or_are_refused(judged: Judged, name: str) -> None:
    first = "age: I32?" if name.startswith("freed") else "a: I32?\n  b: I32?"
    text, expected = RENAMES[name]
    graph = judged(f"node Item {{\n  name: String @key\n  {first}\n}}\n")
    values = {"age": 30} if name.startswith("freed") else {"a": 1, "b": 2}
    graph.load([node("Item", name="x", **values)])
    handle = graph.handle

    with proving("SCH-19"):
        source = f"node Item {{\n  name: String @key\n  {text}\n}}\n"
        try:
            answer = handle.schema_apply(source)
        except EngineError as error:
            assert error.kind == "bad_request" and name != "freed-and-used-again", f"the renames were refused: {error}"
            assert handle.read("node:Item")[0].items() >= values.items()
        else:
            assert answer["applied"] is True, "renames were taken for no change"
            row = handle.read("node:Item")[0]
            assert {column: row[column] for column in expected} == expected
            graph.engine.open(graph.uri).mutate(insert("Item", name="y", **expected))


@pytest.mark.requirement("SCH-19")
def test_types_that_swap_their_names_swap_their_rows_or_are_refused(judged: Judged) -> None:
    one, two = "node One {\n  name: String @key\n}\n", "node Two {\n  name: String @key\n}\n"
    graph = judged(one + two, [node("One", name="first"), node("Two", name="second")])
    source = one.replace("One", 'One @rename_from("Two")') + two.replace("Two", 'Two @rename_from("One")')
    handle = graph.handle

    with proving("SCH-19"):
        try:
            answer = handle.schema_apply(source)
        except EngineError as error:
            assert error.kind == "bad_request"
            expected = [["first"], ["second"]]
        else:
            assert answer["applied"] is True
            expected = [["second"], ["first"]]
        fresh = graph.engine.open(graph.uri)
        assert [[row["id"] for row in fresh.read(key)] for key in ("node:One", "node:Two")] == expected


# -- who else is there -------------------------------------------------------------------------------------------------


@pytest.mark.requirement("SCH-02")
def test_a_schema_apply_needs_a_graph_of_main_alone(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, PEOPLE)
    graph.branch_create("side")
    anvil = forge(graph.uri)
    files, entries = anvil.photograph(*SCHEMA_FILES), anvil.entries()

    with proving("SCH-02"):
        refused("conflict", lambda: graph.schema_apply(WITH_NOTE), "a schema apply beside a branch")
        assert anvil.photograph(*SCHEMA_FILES) == files and anvil.entries() == entries
        assert anvil.branches() == ["side"]
        graph.branch_delete("side")
        graph.schema_apply(WITH_NOTE)


@pytest.mark.requirement("SCH-01", "SCH-10")
def test_a_schema_apply_beside_others_leaves_what_one_after_the_other_would(
    judged: Judged, forge: ForgeOf, peers: Peers
) -> None:
    graph = judged(SOCIAL, PEOPLE)
    handles = [peers().open(graph.uri) for _ in range(3)]
    start, failed = threading.Barrier(3), dict[str, EngineError]()

    def run(name: str, work: Any) -> None:
        start.wait(timeout=60)
        try:
            work()
        except EngineError as error:
            failed[name] = error

    work = {
        "one": lambda: handles[0].schema_apply(WITH_NOTE),
        "two": lambda: handles[1].schema_apply(SOCIAL + CITY),
        "load": lambda: handles[2].load(lines(person("dan", age=4))),
    }
    threads = [threading.Thread(target=run, args=each) for each in work.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)

    handle = graph.engine.open(graph.uri)
    with proving("SCH-10"):
        assert {error.kind for error in failed.values()} <= {"conflict"}, f"{failed}"
        rows = handle.read(PERSON)
        assert ("dan" in {row["id"] for row in rows}) == ("load" not in failed)
    with proving("SCH-01"):
        applied = {name: source for name, source in (("one", WITH_NOTE), ("two", SOCIAL + CITY)) if name not in failed}
        accepted = (forge(graph.uri).read("_schema.pg") or b"").decode()
        assert accepted in (applied.values() or [SOCIAL]), "the accepted schema is none that was applied"
        tables = {each["table_key"] for each in handle.snapshot()["tables"]}
        assert ("note" in rows[0], "node:City" in tables) == (accepted == WITH_NOTE, accepted == SOCIAL + CITY)
        assert handle.schema_plan(accepted)["steps"] == [] and forge(graph.uri).branches() == []


@pytest.mark.requirement("SCH-01")
def test_a_lock_that_is_held_keeps_a_schema_apply_out(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, PEOPLE)
    graph.audited = False
    anvil = forge(graph.uri)
    anvil.create_manifest_branch(LOCK_BRANCH)
    handle = graph.engine.open(graph.uri)
    listing = anvil.listing()

    with proving("SCH-01"):
        refused("conflict", lambda: handle.schema_apply(WITH_NOTE), "a second schema apply")
        assert anvil.listing() == listing


@pytest.mark.requirement("SCH-08", "SCH-10")
def test_other_handles_see_the_new_schema(judged: Judged, engine: Engine) -> None:
    graph = judged(SOCIAL, PEOPLE)
    other = engine.open(graph.uri)
    other.read(PERSON)

    graph.schema_apply(WITH_NOTE + CITY)

    with proving("SCH-08"):
        if engine.supports("refresh"):
            other.refresh()
        assert "note" in other.read(PERSON)[0]
    with proving("SCH-10"):
        graph.mutate(insert("Person", name="dan", note="n"), insert("City", name="Rome"), through=other)
