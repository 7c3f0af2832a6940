"""SCH: the three schema files: what is in them, who may create them, and what an open makes of those that are there."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from conformance.adapters import EngineError
from conformance.audit.names import SCHEMA_FILES, fnv1a_32
from conformance.judge import Engine, proving
from conformance.runner.plugin import ForgeOf, Judged, Peers
from conformance.suites.graphs import PEOPLE, SOCIAL, insert, lines
from conformance.suites.refusals import ANY_KIND, DEFINITE, refused
from fixtures.forge import Forge

CITY = "node City {\n  name: String @key\n}\n"
LIVES_IN = "edge LivesIn: Person -> City\n"
PG, IR, STATE = SCHEMA_FILES


# -- the contract of the three files -----------------------------------------------------------------------------------


@pytest.mark.requirement("SCH-13")
def test_missing_compiled_files_are_made_again_where_there_is_only_main(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, PEOPLE)
    anvil = forge(graph.uri)
    ir, state = compiled(anvil), state_of(anvil)
    anvil.delete(IR)
    anvil.delete(STATE)

    with proving("SCH-13"):
        handle = graph.engine.open(graph.uri)
        assert (compiled(anvil), state_of(anvil)) == (ir, state)
        handle.mutate(insert("Person", name="zoe"))


def remove(*names: str) -> Callable[[Forge], object]:
    def damage(forge: Forge) -> None:
        for name in names:
            forge.delete(name)

    return damage


def edit(name: str, change: Callable[[Any], object]) -> Callable[[Forge], object]:
    return lambda forge: forge.edit_json(name, change)


def without_a_type(body: dict[str, Any]) -> None:
    body["nodes"].pop()


BROKEN: dict[str, tuple[Callable[[Forge], object], bool]] = {
    "no-compiled-form": (remove(IR), False),
    "no-state": (remove(STATE), False),
    "neither-beside-a-branch": (remove(IR, STATE), True),
    "another-hash": (edit(STATE, lambda body: body.update(schema_ir_hash="sha256:" + "0" * 64)), False),
    "another-compiled-form": (edit(IR, without_a_type), False),
}


@pytest.mark.requirement("SCH-13")
@pytest.mark.parametrize(("damage", "has_branch"), BROKEN.values(), ids=list(BROKEN))
def test_schema_files_that_do_not_agree_stop_the_open(
    judged: Judged, forge: ForgeOf, damage: Callable[[Forge], object], has_branch: bool
) -> None:
    graph = judged(SOCIAL, PEOPLE)
    graph.audited = False
    if has_branch:
        graph.branch_create("side")
    anvil = forge(graph.uri)
    damage(anvil)
    listing = anvil.listing()

    with proving("SCH-13"):
        refused("conflict", lambda: graph.engine.open(graph.uri), "the open of a graph whose schema files disagree")
        assert anvil.listing() == listing


# -- the compiled schema -----------------------------------------------------------------------------------------------


@pytest.mark.requirement("SCH-14")
def test_the_compiled_schema_is_sorted_and_names_everything_by_hash(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL + CITY + "interface Named {\n  name: String\n}\ninterface Aged {\n  age: I32?\n}\n")

    with proving("SCH-14"):
        ir = compiled(forge(graph.uri))
        assert ir["ir_version"] == 1
        for group, kind in (("interfaces", "interface"), ("nodes", "node"), ("edges", "edge")):
            names = [each["name"] for each in ir[group]]
            assert names == sorted(names) and names
            for each in ir[group]:
                if "type_id" in each or kind != "interface":
                    assert each["type_id"] == fnv1a_32(f"{kind}:{each['name']}")
                for prop in each["properties"]:
                    if "prop_id" in prop or kind != "interface":
                        assert prop["prop_id"] == fnv1a_32(f"{kind}:{each['name']}:{prop['name']}")
        (person_type,) = (each for each in ir["nodes"] if each["name"] == "Person")
        assert person_type["type_id"] == 3227219152


@pytest.mark.requirement("SCH-14")
def test_the_hash_of_a_schema_does_not_depend_on_the_order_of_its_source(judged: Judged, forge: ForgeOf) -> None:
    parts = [CITY, "node Person {\n  name: String @key\n}\n", LIVES_IN, "edge Knows: Person -> Person\n"]
    one, two = judged("".join(parts)), judged("// other way round\n" + "".join(reversed(parts)))

    with proving("SCH-14"):
        assert compiled(forge(one.uri)) == compiled(forge(two.uri))
        assert state_of(forge(one.uri)) == state_of(forge(two.uri))
        other = judged("".join(parts).replace("name: String @key", "name: String @key\n  age: I32?"))
        assert state_of(forge(other.uri)) != state_of(forge(one.uri))


def compiled(forge: Forge) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(forge.read("_schema.ir.json") or b"null")
    return found


def state_of(forge: Forge) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(forge.read("__schema_state.json") or b"null")
    return found


# -- init --------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("SCH-16")
@pytest.mark.parametrize("name", SCHEMA_FILES)
def test_init_refuses_a_place_with_any_schema_file(engine: Engine, forge: ForgeOf, root: str, name: str) -> None:
    anvil = forge(root)
    anvil.write(name, b"something")

    with proving("SCH-16"):
        refused(DEFINITE, lambda: engine.init(root, SOCIAL), f"an init over {name}")
        assert anvil.list() == [name] and anvil.read(name) == b"something"
        engine.init(root, SOCIAL, force=True)
        engine.open(root).load(lines(*PEOPLE))


@pytest.mark.requirement("SCH-16")
def test_init_over_a_graph_is_refused_unless_it_is_forced(judged: Judged, forge: ForgeOf, engine: Engine) -> None:
    graph = judged(SOCIAL, PEOPLE)
    listing = forge(graph.uri).listing()

    with proving("SCH-16"):
        refused(DEFINITE, lambda: engine.init(graph.uri, CITY), "an init over a graph")
        assert forge(graph.uri).listing() == listing
        graph.audited = False  # Of a graph over which a forced init has failed there may be no more than a part.
        engine.init(graph.uri, CITY, force=True)
        graph.audited = True
        handle = engine.open(graph.uri)
        assert {each["table_key"] for each in handle.snapshot()["tables"]} == {"node:City"}
        assert handle.export() == "" and len(handle.commits()) == 1


@pytest.mark.requirement("SCH-16")
def test_an_init_with_a_broken_schema_leaves_nothing(engine: Engine, forge: ForgeOf, root: str) -> None:
    with proving("SCH-16"):
        refused("bad_request", lambda: engine.init(root, "node {"), "an init with a broken schema")
        assert [name for name in forge(root).list() if name in SCHEMA_FILES] == []
        engine.init(root, SOCIAL)


@pytest.mark.requirement("SCH-16")
@pytest.mark.parametrize(
    "point", ["init.after_schema_pg_written", "init.after_schema_contract_written", "init.after_coordinator_init"]
)
def test_an_init_that_fails_removes_its_schema_files(peers: Peers, forge: ForgeOf, root: str, point: str) -> None:
    peer = peers(failpoints=f"{point}=error*1")

    with proving("SCH-16"):
        refused(ANY_KIND, lambda: peer.init(root, SOCIAL), "an init that was stopped")
        assert [name for name in forge(root).list() if name in SCHEMA_FILES] == []
        peer.init(root, SOCIAL, force=True)
        peer.open(root).load(lines(*PEOPLE))


@pytest.mark.requirement("SCH-16")
def test_of_two_inits_one_wins_whole(peers: Peers, engine: Engine, forge: ForgeOf, root: str) -> None:
    engines, schemas = [peers(), peers()], [SOCIAL, CITY]
    start, won, failed = threading.Barrier(2), list[str](), list[EngineError]()

    def init(peer: Engine, schema: str) -> None:
        start.wait(timeout=60)
        try:
            peer.init(root, schema)
            won.append(schema)
        except EngineError as error:
            failed.append(error)

    threads = [threading.Thread(target=init, args=each) for each in zip(engines, schemas, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)

    with proving("SCH-16"):
        assert len(won) == 1, f"won: {len(won)}, refused: {[str(each) for each in failed]}"
        assert forge(root).read("_schema.pg") == won[0].encode()
        handle = engine.open(root)
        assert ("node:City" in {each["table_key"] for each in handle.snapshot()["tables"]}) == (won[0] == CITY)
        assert forge(root).audit().of("error") == ()
