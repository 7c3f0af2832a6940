"""SNP, the second half: readers that only read, that notice a schema which is not theirs, and that know others' graphs.

A read-only open changes nothing, whatever it finds, and sees what is published. The golden graphs were written by the
public engine, whole or killed at a bad moment, and have to read and recover here as they do there.
"""

from __future__ import annotations

import urllib.request
from collections.abc import Callable
from functools import partial

import pytest
from _pytest.mark.structures import ParameterSet

from conformance.adapters import EngineError
from conformance.judge import Engine, JudgedGraph, proving
from conformance.judge.engine import Handle
from conformance.runner.plugin import ForgeOf, Judged
from conformance.suites.graphs import EVOLVED, PEOPLE, SOCIAL, insert, lines, node, person, place_golden
from conformance.suites.refusals import ANY_KIND, DEFINITE, refused
from fixtures import golden
from fixtures.forge import Forge
from fixtures.stores.catalog import Store

TABLES = ("edge:Knows", "edge:WorksAt", "node:Company", "node:Person")


# -- reading alone -----------------------------------------------------------------------------------------------------


def load_dan(graph: JudgedGraph) -> object:
    return graph.handle.load(lines(person("dan"), node("Company", name="initech")))


def crashed_load(graph: JudgedGraph, forge: Forge) -> None:
    forge.crash_between_commit_and_publish(lambda: load_dan(graph), writer_kind="Load")


def half_load(graph: JudgedGraph, forge: Forge) -> None:
    forge.crash_half_way(lambda: load_dan(graph), writer_kind="Load")


def crashed_schema_apply(graph: JudgedGraph, forge: Forge) -> None:
    if graph.engine.supports("schema_apply"):
        apply = partial(graph.handle.schema_apply, EVOLVED)
        forge.crash_between_commit_and_publish(apply, writer_kind="SchemaApply")


def drift(_: JudgedGraph, forge: Forge) -> None:
    forge.raw_append("node:Person", [{"id": "eve", "name": "eve"}])
    forge.raw_delete("edge:Knows", "id = 'k1'")


def unreadable_sidecar(_: JudgedGraph, forge: Forge) -> None:
    forge.write("__recovery/01ARZ3NDEKTSV4RRFFQ69G5FAV.json", b"{ no JSON")


STATES: dict[str, Callable[[JudgedGraph, Forge], None]] = {
    "nothing unusual": lambda graph, forge: None,
    "a load that died before its publish": crashed_load,
    "a load that died half way": half_load,
    "a schema apply that died before its publish": crashed_schema_apply,
    "tables that have drifted": drift,
    "a sidecar that nobody can read": unreadable_sidecar,
}


@pytest.mark.requirement("SNP-09")
@pytest.mark.parametrize("state", STATES)
def test_a_read_only_open_reads_what_is_published_and_writes_nothing(
    judged: Judged, forge: ForgeOf, state: str
) -> None:
    graph = judged(SOCIAL, PEOPLE)
    graph.audited = False
    there = forge(graph.uri)
    STATES[state](graph, there)
    before = there.listing()

    with proving("SNP-09"):
        handle = graph.engine.open(graph.uri, read_only=True)
        assert handle.recovered == ()
        assert handle.export() == graph.model.export()
        for key in TABLES:
            assert handle.read(key) == graph.model.read(key)
            assert len(handle.read(key)) == handle.table(key)["row_count"]
        assert [each["graph_commit_id"] for each in handle.commits()] == [
            each.commit_id for each in graph.model.commits()
        ]
        refused(ANY_KIND, lambda: handle.load(lines(person("fay"))), "a write through a handle that only reads")
        refused(ANY_KIND, lambda: handle.mutate(insert("Person", name="fay")), "a write through it")
        assert there.listing() == before, f"a reader changed the store, which has {state}"


@pytest.mark.requirement("SNP-10")
def test_readers_notice_a_schema_that_was_edited_by_hand(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, PEOPLE)
    there = forge(graph.uri)
    accepted = there.read("_schema.pg") or b""
    warm = graph.handle
    reads: dict[str, Callable[[Handle], object]] = {
        "a read": lambda handle: handle.read("node:Person"),
        "a read of an old version": lambda handle: handle.read("node:Person", version=1),
        "an export": lambda handle: handle.export(),
    }
    if graph.engine.supports("entity_at"):
        reads["an entity"] = lambda handle: handle.entity_at("node:Person", "ann")
    for source in (EVOLVED, SOCIAL.replace("age: I32?", "age: I64?"), SOCIAL.replace("@card(0..2)", "@card(0..1)")):
        there.write("_schema.pg", source.encode())
        for what, read in reads.items():
            with proving("SNP-10"):
                refused("conflict", partial(read, warm), f"{what} from a warm handle")
                for opened in (graph.engine.look, graph.engine.open):
                    refused("conflict", partial(_read_anew, opened, graph.uri, read), f"{what} from a new handle")
    there.write("_schema.pg", accepted)
    with proving("SNP-10"):
        assert warm.export() == graph.model.export()
        graph.reopen()


def _read_anew(opened: Callable[[str], Handle], uri: str, read: Callable[[Handle], object]) -> object:
    return read(opened(uri))


# -- graphs of the public engine ---------------------------------------------------------------------------------------


@pytest.mark.requirement("EXP-01", "EXP-02", "SNP-04", "SNP-09", "LIN-10", "MAN-11")
def test_a_graph_of_the_public_engine_reads_as_that_engine_reads_it(engine: Engine, forge: ForgeOf, root: str) -> None:
    place_golden("social", forge(root))
    before, meant = forge(root).listing(), golden.expect("social")
    handle = engine.look(root)

    with proving("EXP-01", "EXP-02"):
        assert handle.export() == meant["export"]["main"]
    with proving("LIN-10"):
        assert handle.commits() == meant["commits"]["main"]
    with proving("MAN-11"):
        for entry in handle.snapshot()["tables"]:
            assert len(handle.read(entry["table_key"])) == entry["row_count"]
    with proving("SNP-04"):
        for commit in meant["commits"]["main"][::4]:
            snapshot = handle.snapshot(commit=commit["graph_commit_id"])
            assert snapshot["manifest_version"] == commit["manifest_version"]
            for entry in snapshot["tables"]:
                rows = handle.read(entry["table_key"], commit=commit["graph_commit_id"])
                assert len(rows) == entry["row_count"]
    with proving("SNP-09"):
        assert engine.open(root, read_only=True).export() == meant["export"]["main"]
        assert forge(root).listing() == before


@pytest.mark.requirement("EXP-01", "EXP-05", "BRA-04")
def test_the_branches_of_the_public_engine_read_as_that_engine_reads_them(
    engine: Engine, forge: ForgeOf, store: Store, root: str
) -> None:
    """Lance keeps absolute addresses in branches: only where a graph was written must they be readable for everyone."""
    is_home = store.name == "moto"
    uri = f"s3://{golden.BUCKET}/social" if is_home else root
    if is_home:
        bucket = urllib.request.Request(f"{store.env['AWS_ENDPOINT_URL_S3']}/{golden.BUCKET}", method="PUT")
        with urllib.request.urlopen(bucket, timeout=30) as answer:
            answer.read()
    place_golden("social", forge(uri))
    meant, handle = golden.expect("social"), engine.look(uri)

    with proving("BRA-04"):
        assert sorted(handle.branch_list()) == sorted(meant["branches"])
    with proving("EXP-01", "EXP-05"):
        for branch in meant["branches"]:
            try:
                found = handle.commits(branch), handle.snapshot(branch), handle.export(branch)
            except EngineError:
                assert not is_home, f"the branch {branch!r} is where it was written, and cannot be read"
            else:
                assert found == tuple(meant[what][branch] for what in ("commits", "snapshot", "export"))


def crashed(name: str, requirement: str) -> ParameterSet:
    return pytest.param(name, requirement, marks=pytest.mark.requirement(requirement), id=name)


CRASHED = (
    crashed("crashed-load", "REC-05"),
    crashed("crashed-mutation-half", "REC-04"),
    crashed("crashed-merge-confirmed", "REC-08"),
    crashed("crashed-schema", "SCH-12"),
)


@pytest.mark.requirement("SNP-09")
@pytest.mark.parametrize("name", [str(each.id) for each in CRASHED])
def test_a_crashed_graph_of_the_public_engine_is_read_as_it_was_published(
    engine: Engine, forge: ForgeOf, root: str, name: str
) -> None:
    there = forge(root)
    place_golden(name, there)
    before = there.listing()

    with proving("SNP-09"):
        published = golden.expect(name)["commits"]["main"][:-1]  # The last one is the recovery.
        assert engine.open(root, read_only=True).commits() == published
        assert there.listing() == before


@pytest.mark.parametrize(("name", "requirement"), CRASHED)
def test_a_crashed_graph_of_the_public_engine_recovers_as_that_engine_recovers_it(
    engine: Engine, forge: ForgeOf, root: str, name: str, requirement: str
) -> None:
    there = forge(root)
    place_golden(name, there)
    meant = golden.expect(name)
    published = meant["commits"]["main"][:-1]  # The last one is the recovery.

    with proving(requirement):
        recovered = engine.open(root)
        assert recovered.export() == meant["export"]["main"]
        assert recovered.commits()[: len(published)] == published
        assert there.sidecars() == {}
        found = [(each["operation_id"], each["recovery_kind"]) for each in recovered.recoveries()]
        assert found == [(each["operation_id"], each["recovery_kind"]) for each in meant["audit"]]


WRITES: dict[str, Callable[[Handle], object]] = {
    "load": lambda handle: handle.load(lines(person("x"))),
    "mutate": lambda handle: handle.mutate(insert("Person", name="x")),
    "branch_create": lambda handle: handle.branch_create("x"),
    "branch_delete": lambda handle: handle.branch_delete("side"),
    "merge": lambda handle: handle.merge("side"),
    "schema_apply": lambda handle: handle.schema_apply(EVOLVED),
    "optimize": lambda handle: handle.optimize(),
    "ensure_indices": lambda handle: handle.ensure_indices(),
    "cleanup": lambda handle: handle.cleanup(keep_versions=1),
    "repair": lambda handle: handle.repair(confirm=True),
}


@pytest.mark.requirement("SNP-09")
def test_nothing_can_be_written_through_a_read_only_handle(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, PEOPLE)
    if graph.engine.supports("branch_create"):
        graph.branch_create("side")
        graph.mutate(insert("Person", name="s"), branch="side")
    graph.mutate(insert("Person", name="m"))
    handle = graph.engine.open(graph.uri, read_only=True)
    before = forge(graph.uri).listing()

    with proving("SNP-09"):
        for op, write in WRITES.items():
            if graph.engine.supports(op):
                refused(DEFINITE, partial(write, handle), f"{op} through a read-only handle")
        assert forge(graph.uri).listing() == before, "and nothing of it was written"
