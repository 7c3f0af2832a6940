"""SCH: a schema apply that died leaves the old schema or the new one, whole, and a graph that can be written again.

Every state between its steps is forged: which of the three staged files are there, which of them were put in place,
whether the manifest was published, and whether the sidecar and the lock are still there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from conformance.audit.names import LOCK_BRANCH, SCHEMA_FILES, STAGING_FILES
from conformance.judge import Engine, Handle, JudgedGraph, proving
from conformance.runner.plugin import ForgeOf, Judged, Peers
from conformance.suites.crashed import Crashed, check_recovered_golden, let_die, put_golden, rows_of
from conformance.suites.graphs import insert, node
from conformance.suites.refusals import ANY_KIND, refused
from fixtures.forge import Forge

ITEM = "node:Item"
OLD = "node Item {\n  name: String @key\n  size: I32?\n}\nnode Other {\n  name: String @key\n}\n"
NEW = OLD.replace("size: I32?", "size: I32?\n  note: String?") + "node Third {\n  name: String @key\n}\n"
RETOLD = OLD.replace("size: I32?", "size: I32?\n  note: String?")
ROWS = (node("Item", name="a", size=1), node("Item", name="b"), node("Other", name="o"))
PG, IR, STATE = SCHEMA_FILES

Files = Mapping[str, bytes]


def schema_files(forge: Forge) -> dict[str, bytes]:
    return {name: content for name in SCHEMA_FILES if (content := forge.read(name)) is not None}


def files_of(engine: Engine, forge: Forge, source: str) -> dict[str, bytes]:
    """What the engine itself makes of a schema, at a place of its own."""
    engine.init(forge.uri, source)
    return schema_files(forge)


def stage(forge: Forge, files: Files, *names: str) -> None:
    for name in names or SCHEMA_FILES:
        forge.write(f"{name}.staging", files[name])


def put(forge: Forge, files: Files, *names: str) -> None:
    for name in names or SCHEMA_FILES:
        forge.write(name, files[name])


def is_whole(forge: Forge, files: Files) -> bool:
    """Whether the three files in place are these, and none is staged any more."""
    found = schema_files(forge)
    same = found.keys() == files.keys() and found[PG] == files[PG]
    compiled = all(json.loads(found[name]) == json.loads(files[name]) for name in (IR, STATE) if name in found)
    return same and compiled and all(forge.read(name) is None for name in STAGING_FILES)


# -- every cut ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cut:
    """What of the new schema is staged and in place, and whether its publish came."""

    staged: tuple[str, ...]
    in_place: tuple[str, ...] = ()
    is_published: bool = False

    @property
    def is_partly_staged(self) -> bool:
        return not self.is_published and 0 < len(self.staged) < len(SCHEMA_FILES)


CUTS = {
    "before-staging": Cut(()),
    "one-file-staged": Cut((PG,)),
    "two-files-staged": Cut((PG, IR)),
    "all-files-staged": Cut((PG, IR, STATE)),
    "published": Cut((PG, IR, STATE), (), True),
    "source-copied": Cut((PG, IR, STATE), (PG,), True),
    "source-moved": Cut((IR, STATE), (PG,), True),
    "compiled-form-copied": Cut((IR, STATE), (PG, IR), True),
    "compiled-form-moved": Cut((STATE,), (PG, IR), True),
    "state-copied": Cut((STATE,), (PG, IR, STATE), True),
    "all-moved": Cut((), (PG, IR, STATE), True),
}


@dataclass(frozen=True)
class Applied:
    """A crashed apply, and both schemas as files."""

    crash: Crashed
    old: Files
    new: Files


def cut_apply(graph: JudgedGraph, forge: Forge, cut: Cut, *, is_locked: bool = True) -> Applied:
    old, new = schema_files(forge), dict[str, bytes]()

    def apply() -> None:
        graph.handle.schema_apply(NEW)
        new.update(schema_files(forge))

    crashed = Crashed.after_publish if cut.is_published else Crashed.before_publish
    crash = crashed(graph, forge, apply, writer_kind="SchemaApply")
    for name in STAGING_FILES:
        if forge.read(name) is not None:
            forge.delete(name)
    put(forge, old)
    if cut.in_place:
        put(forge, new, *cut.in_place)
    if cut.staged:
        stage(forge, new, *cut.staged)
    if cut.is_published and is_locked:
        forge.create_manifest_branch(LOCK_BRANCH)
    return Applied(crash, old, new)


@pytest.mark.requirement("SCH-18", "SCH-17", "SCH-12")
@pytest.mark.parametrize("cut", CUTS.values(), ids=list(CUTS))
def test_wherever_an_apply_is_cut_one_whole_schema_is_left(judged: Judged, forge: ForgeOf, cut: Cut) -> None:
    graph = judged(OLD, ROWS)
    applied = cut_apply(graph, forge(graph.uri), cut)
    crash, anvil = applied.crash, applied.crash.forge

    graph.audited = False  # Files of two schemas stay where nobody can open the graph any more.
    with proving("SCH-18"):
        handle = crash.reopened()
    graph.audited = True

    # With a part of the new schema staged, an engine may make the rest of it, or give it up.
    is_forward = "note" in handle.read(ITEM)[0] if cut.is_partly_staged else cut.is_published or bool(cut.staged)

    with proving("SCH-18"):
        assert is_whole(anvil, applied.new if is_forward else applied.old), "the schema is not one of the two, whole"
        assert ("note" in handle.read(ITEM)[0]) == is_forward
        assert ("node:Third" in {each["table_key"] for each in handle.snapshot()["tables"]}) == is_forward
        assert rows_of(handle) == (crash.after if is_forward else crash.before)
        assert handle.schema_plan(NEW if is_forward else OLD)["steps"] == []
    with proving("SCH-12"):
        crash.check_audit(handle, "RolledForward" if is_forward else "RolledBack")
        crash.check_second_open(handle)
    with proving("SCH-17"):
        assert anvil.branches() == [] and anvil.sidecars() == {}, "the lock or the sidecar is still there"
        handle.mutate(insert("Item", name="c"))
        handle.branch_create("side")
        handle.branch_delete("side")
        again = handle.schema_apply(NEW)
        assert again["applied"] is not is_forward
        assert is_whole(anvil, applied.new)


@pytest.mark.requirement("SCH-12", "SCH-17")
def test_an_apply_that_released_its_lock_and_not_its_sidecar_is_finished(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(OLD, ROWS)
    applied = cut_apply(graph, forge(graph.uri), CUTS["all-moved"], is_locked=False)

    handle = applied.crash.reopened()

    with proving("SCH-12", "SCH-17"):
        applied.crash.check_audit(handle, "RolledForward")
        assert is_whole(applied.crash.forge, applied.new)
        handle.schema_apply(OLD)


@pytest.mark.requirement("SCH-12", "SCH-17")
@pytest.mark.parametrize(
    "source",
    [
        OLD.replace("node Other {\n  name: String @key\n}\n", ""),
        OLD.replace("node Other {", 'node Another @rename_from("Other") {'),
        OLD + "node Third {\n  name: String @key\n}\n",
        OLD.replace("size: I32?", 'length: I32? @rename_from("size")'),
    ],
    ids=["drop", "rename", "add-type", "rename-property"],
)
@pytest.mark.parametrize("kind", ["RolledForward", "RolledBack"])
def test_every_kind_of_change_goes_forward_or_back(judged: Judged, forge: ForgeOf, source: str, kind: str) -> None:
    graph = judged(OLD, ROWS)
    cut = Crashed.before_publish if kind == "RolledForward" else Crashed.half_way
    crash = cut(graph, forge(graph.uri), lambda: graph.handle.schema_apply(source), writer_kind="SchemaApply")

    handle = crash.reopened()

    with proving("SCH-12"):
        crash.check_audit(handle, kind)
        crash.check_sound(handle, crash.rows_after(kind))
        assert crash.forge.read(PG) == (source if kind == "RolledForward" else OLD).encode()
        assert handle.schema_plan(source)["steps"] == [] or kind == "RolledBack"
        crash.check_second_open(handle)
    with proving("SCH-17"):
        handle.schema_apply(source)
    with proving("SCH-12"):
        assert rows_of(handle) == crash.after


@pytest.mark.requirement("SCH-12")
def test_an_apply_that_the_public_engine_left_is_finished(
    engine: Engine, forge: ForgeOf, root: str, tmp_path: Path
) -> None:
    anvil = forge(root)
    put_golden("crashed-schema", anvil, tmp_path)

    with proving("SCH-12"):
        check_recovered_golden("crashed-schema", engine.open(root), anvil)
        assert all(anvil.read(name) is None for name in STAGING_FILES)


@pytest.mark.requirement("SCH-10", "SCH-12")
@pytest.mark.parametrize(
    ("point", "staged", "is_published"),
    [
        ("schema_apply.before_staging_write", False, False),
        ("schema_apply.after_staging_write", True, False),
        ("schema_apply.after_manifest_commit", True, True),
    ],
)
def test_an_apply_works_in_the_order_in_which_it_can_be_recovered(
    judged: Judged, forge: ForgeOf, peers: Peers, point: str, staged: bool, is_published: bool
) -> None:
    graph = judged(OLD, ROWS)
    anvil = forge(graph.uri)
    old, commits = schema_files(anvil), len(graph.handle.commits())
    handle = peers(failpoints=f"{point}=error*1").open(graph.uri)

    refused(ANY_KIND, lambda: handle.schema_apply(NEW), "an apply that was stopped")

    with proving("SCH-10"):
        assert (len(anvil.decoded().commits) > commits) == is_published
        if anvil.sidecars():  # Otherwise the engine has taken its apply back by itself.
            assert schema_files(anvil) == old, "the schema files were changed before their time"
            assert [anvil.read(name) is not None for name in STAGING_FILES] == [staged] * 3
            assert LOCK_BRANCH in anvil.branches(), "an apply without its lock"
            (body,) = (json.loads(content) for content in anvil.sidecars().values())
            assert [each["table_key"] for each in body["additional_registrations"]] == ["node:Third"]
        else:
            assert not is_published and anvil.branches() == []
    let_die(anvil)
    had_sidecar = bool(anvil.sidecars())
    recovered = graph.engine.open(graph.uri)
    with proving("SCH-12"):
        is_forward = had_sidecar and staged
        assert ("note" in recovered.read(ITEM)[0]) == is_forward
        assert (anvil.read(PG) == NEW.encode()) == is_forward
        assert anvil.branches() == [] and anvil.sidecars() == {}
        assert recovered.schema_apply(NEW)["applied"] is not is_forward


# -- staged files that no sidecar explains -----------------------------------------------------------------------------


def same_schema(forge: Forge, files: Callable[[str], Files]) -> Files:
    stage(forge, files(OLD))
    return files(OLD)


def unpublished_type(forge: Forge, files: Callable[[str], Files]) -> Files:
    stage(forge, files(NEW))
    return files(OLD)


def published_type(forge: Forge, files: Callable[[str], Files]) -> Files:
    """The tables of the manifest are those of the staged schema, and the files in place are of another."""
    other = files(OLD + "node Third {\n  name: String @key\n}\n")
    put(forge, other)
    stage(forge, files(OLD))
    return files(OLD)


def renamed_half(forge: Forge, files: Callable[[str], Files]) -> Files:
    """Only the compiled form and the state are still to be put in place."""
    put(forge, files(OLD + "node Third {\n  name: String @key\n}\n"), IR, STATE)
    stage(forge, files(OLD), IR, STATE)
    return files(OLD)


def renamed_but_the_state(forge: Forge, files: Callable[[str], Files]) -> Files:
    put(forge, files(OLD + "node Third {\n  name: String @key\n}\n"), STATE)
    stage(forge, files(OLD), STATE)
    return files(OLD)


DECIDABLE = [same_schema, unpublished_type, published_type, renamed_half, renamed_but_the_state]


@pytest.mark.requirement("SCH-11")
@pytest.mark.parametrize("state", DECIDABLE, ids=lambda each: each.__name__)
def test_staged_files_are_completed_or_removed_by_what_the_manifest_says(
    judged: Judged, forge: ForgeOf, store: Any, state: Callable[[Forge, Callable[[str], Files]], Files]
) -> None:
    graph = judged(OLD, ROWS)
    anvil = forge(graph.uri)
    before = rows_of(graph.handle)

    def files(source: str) -> Files:
        return files_of(graph.engine, forge(store.fresh_root()), source)

    expected = state(anvil, files)
    handle = graph.engine.open(graph.uri)

    with proving("SCH-11"):
        assert is_whole(anvil, expected), f"in place: {schema_files(anvil)}"
        assert rows_of(handle) == before and handle.recoveries() == []
        handle.mutate(insert("Item", name="c"))
        graph.engine.open(graph.uri)


def same_tables_another_schema(forge: Forge, files: Callable[[str], Files]) -> None:
    stage(forge, files(RETOLD))


def neither_fits(forge: Forge, files: Callable[[str], Files]) -> None:
    put(forge, files(OLD + "node Third {\n  name: String @key\n}\n"))
    stage(forge, files(OLD + "node Fourth {\n  name: String @key\n}\n"))


def a_state_of_nothing(forge: Forge, files: Callable[[str], Files]) -> None:
    """A staged state alone, which is not that of the source in place."""
    stage(forge, files(NEW), STATE)


UNDECIDABLE = [same_tables_another_schema, neither_fits, a_state_of_nothing]


@pytest.mark.requirement("SCH-11")
@pytest.mark.parametrize("state", UNDECIDABLE, ids=lambda each: each.__name__)
def test_staged_files_that_cannot_be_decided_stop_the_open_and_stay(
    judged: Judged, forge: ForgeOf, store: Any, state: Callable[[Forge, Callable[[str], Files]], None]
) -> None:
    graph = judged(OLD, ROWS)
    graph.audited = False
    anvil = forge(graph.uri)
    state(anvil, lambda source: files_of(graph.engine, forge(store.fresh_root()), source))
    listing = anvil.listing()

    with proving("SCH-11"):
        refused(ANY_KIND, lambda: graph.engine.open(graph.uri), "the open of a graph with two schemas")
        assert anvil.listing() == listing, "something was changed although it cannot be known what is right"


@pytest.mark.requirement("SCH-11", "REC-21")
@pytest.mark.parametrize("cut", ["all-files-staged", "one-file-staged"])
def test_a_read_only_open_leaves_staged_files_alone(judged: Judged, forge: ForgeOf, engine: Engine, cut: str) -> None:
    graph = judged(OLD, ROWS)
    applied = cut_apply(graph, forge(graph.uri), CUTS[cut])
    listing = applied.crash.forge.listing()

    with proving("REC-21"):
        handle = engine.open(graph.uri, read_only=True)
        assert rows_of(handle) == applied.crash.before
        assert applied.crash.forge.listing() == listing
    with proving("SCH-11"):
        applied.crash.reopened()
        possible = [applied.new] if cut == "all-files-staged" else [applied.old, applied.new]
        assert any(is_whole(applied.crash.forge, files) for files in possible)


# -- a lock that nobody holds ------------------------------------------------------------------------------------------


@pytest.mark.requirement("SCH-17")
def test_a_lock_without_a_sidecar_is_named_and_released_by_repair(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(OLD, ROWS)
    anvil = forge(graph.uri)
    anvil.create_manifest_branch(LOCK_BRANCH)
    handle = graph.engine.open(graph.uri)
    before = rows_of(handle)

    with proving("SCH-17"):
        refused("conflict", lambda: handle.schema_apply(NEW), "a schema apply under a lock")
        assert handle.repair().get("schema_lock") == "held"
        assert anvil.branches() == [LOCK_BRANCH], "a preview has released the lock"
        assert handle.repair(confirm=True).get("schema_lock") == "released"
        assert anvil.branches() == []
        assert rows_of(handle) == before
        assert handle.repair().get("schema_lock") is None
        write_everything(graph.engine.open(graph.uri))


@pytest.mark.requirement("SCH-17")
def test_the_lock_of_an_apply_with_a_sidecar_is_not_repairs_to_release(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(OLD, ROWS)
    applied = cut_apply(graph, forge(graph.uri), CUTS["all-files-staged"])
    handle = applied.crash.live_handle()

    with proving("SCH-17"):
        refused("conflict", lambda: handle.repair(confirm=True), "a repair beside a pending sidecar")
        assert applied.crash.forge.branches() == [LOCK_BRANCH]
        write_everything(applied.crash.reopened())


def write_everything(handle: Handle) -> None:
    """Every operation that a lock keeps out."""
    handle.mutate(insert("Item", name="c"))
    handle.branch_create("side")
    handle.mutate(insert("Item", name="d"), branch="side")
    handle.merge("side")
    handle.branch_delete("side")
    handle.schema_apply(NEW.replace("Third", "Fifth"))
    handle.ensure_indices()
