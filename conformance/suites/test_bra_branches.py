"""BRA: a branch is one ref of `__manifest`; it shares what it has not written, and nobody sees what another writes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from conformance.audit.names import LOCK_BRANCH
from conformance.judge import Engine, Handle, JudgedGraph, proving
from conformance.runner.plugin import ForgeOf, Judged
from conformance.suites.graphs import PEOPLE, SOCIAL, delete, insert, insert_edge, lines, person, update, where
from conformance.suites.refusals import DEFINITE, refused

PERSON, COMPANY, KNOWS = "node:Person", "node:Company", "edge:Knows"
SMALL = "node Item {\n  name: String @key\n}\n"
ITEM = "node:Item"
ONE_ITEM = lines({"type": "Item", "data": {"name": "a"}})


# -- creating ----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("BRA-01", "BRA-04")
def test_a_new_branch_is_a_change_of_the_manifest_alone(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, PEOPLE)
    graph.mutate(insert("Person", name="dan"))
    anvil = forge(graph.uri)
    listing, version, commits = anvil.listing(), anvil.manifest_version(), graph.handle.commits()

    graph.branch_create("feat/one")

    with proving("BRA-01"):
        after = anvil.listing()
        changed = {name for name in listing.keys() | after.keys() if listing.get(name) != after.get(name)}
        assert changed and all(name.startswith("__manifest/") for name in changed), f"changed: {sorted(changed)}"
        assert anvil.manifest_version() == version, "main has got a new version"
        assert anvil.manifest_version("feat/one") == version, "the branch is not at its source's current version"
        assert anvil.entries("feat/one") == anvil.entries()
        assert graph.handle.commits() == graph.handle.commits("feat/one") == commits, "a branch is no commit"
    with proving("BRA-04"):
        assert sorted(graph.handle.branch_list()) == ["feat/one", "main"]


@pytest.mark.requirement("BRA-01", "BRA-17")
def test_a_branch_of_a_branch_starts_where_its_source_stands(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, PEOPLE)
    graph.branch_create("one")
    graph.mutate(insert("Person", name="dan"), branch="one")
    graph.mutate(insert("Person", name="only-main"))
    anvil = forge(graph.uri)

    graph.branch_create("two", "one")

    with proving("BRA-01"):
        assert anvil.manifest_version("two") == anvil.manifest_version("one")
        assert anvil.entries("two") == anvil.entries("one")
        assert graph.handle.commits("two") == graph.handle.commits("one")
    with proving("BRA-17"):
        assert [row["id"] for row in graph.handle.read(PERSON, "two")] == ["ann", "bob", "cat", "dan"]
        graph.mutate(update("Person", where("name", "dan"), age=1), branch="two")
        graph.mutate(delete("Person", where("name", "dan")), branch="one")
        graph.mutate(insert_edge("Knows", "dan", "ann"), branch="two")


@pytest.mark.requirement("BRA-04", "BRA-01")
def test_a_branch_made_through_one_handle_is_listed_and_read_by_another(judged: Judged) -> None:
    graph = judged(SMALL, [{"type": "Item", "data": {"name": "a"}}])
    other = graph.engine.open(graph.uri)
    assert other.branch_list() == ["main"]

    for name in ("b", "a/b", "zoe", "Zoe"):
        graph.branch_create(name)

    with proving("BRA-04"):
        assert sorted(other.branch_list()) == sorted(["main", "b", "a/b", "zoe", "Zoe"])
    with proving("BRA-01"):
        assert other.export("a/b") == other.export("main")
        assert graph.engine.open(graph.uri, branch="zoe").export() == other.export("main")


# -- names -------------------------------------------------------------------------------------------------------------

BAD_NAMES = {
    "empty": "",
    "blank": "  ",
    "space": "a b",
    "no-break-space": "a\u00a0b",
    "empty-part": "a//b",
    "only-a-slash": "/",
    "ends-in-a-slash": "a/",
    "dots": "a..b",
    "parent": "a/../b",
    "lock": "a.lock",
    "lock-of-a-part": "a.lock/b",
    "backslash": "a\\b",
    "colon": "a:b",
    "question-mark": "a?b",
    "star": "a*",
    "percent": "a%2Fb",
    "at": "a@b",
    "quote": "a'b",
    "line-feed": "a\nb",
    "zero": "a\x00b",
    "symbol": "a→b",
}


@pytest.mark.requirement("BRA-02")
def test_a_bad_name_is_refused_and_leaves_nothing(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SMALL)
    listing = forge(graph.uri).listing()

    with proving("BRA-02"):
        for what, name in BAD_NAMES.items():
            refused(DEFINITE, partial(graph.handle.branch_create, name), f"the branch name {name!r} ({what})")
            load = f"a load that creates the branch {name!r}"
            refused(DEFINITE, partial(graph.handle.load, ONE_ITEM, branch=name, base="main"), load)
            assert forge(graph.uri).listing() == listing, f"the refused name {name!r} has left files"
        assert graph.handle.branch_list() == ["main"]


@pytest.mark.requirement("BRA-02")
@pytest.mark.parametrize("name", ["a b", "a..b", "a+b", "a//b"])
def test_what_was_refused_as_a_name_names_no_branch_afterwards(judged: Judged, name: str) -> None:
    """A refusal that leaves files may leave a branch that nobody lists, and that can be merged all the same."""
    graph = judged(SMALL)
    handle = graph.handle

    with proving("BRA-02"):
        refused(DEFINITE, lambda: handle.branch_create(name), f"the branch name {name!r}")
        refused(DEFINITE, lambda: handle.merge("main", name), "a merge into what was refused")
        refused(DEFINITE, lambda: handle.merge(name, "main"), "a merge of what was refused")
        refused(DEFINITE, lambda: handle.export(name), "an export of what was refused")
        refused(DEFINITE, lambda: handle.branch_create("b", name), "a branch of what was refused")
        assert handle.branch_list() == ["main"]


@pytest.mark.requirement("BRA-02")
@pytest.mark.parametrize("name", ["main", " main ", "taken", " taken", "taken\n"])
def test_a_name_that_is_taken_is_refused_and_leaves_nothing(judged: Judged, forge: ForgeOf, name: str) -> None:
    graph = judged(SMALL)
    graph.branch_create("taken")
    graph.mutate(insert("Item", name="t"), branch="taken")
    listing = forge(graph.uri).listing()

    with proving("BRA-02"):
        refused(DEFINITE, lambda: graph.handle.branch_create(name), f"the taken name {name!r}")
        assert forge(graph.uri).listing() == listing
        graph.compare("a refused branch", "BRA-02")


@pytest.mark.requirement("BRA-02")
@pytest.mark.parametrize(
    "name", ["a.b-c_d", "feat/one/two", "7", "ünïcode", "日本/語", "__run__x", "A", "-x", "x" * 100]
)
def test_a_good_name_can_be_created_written_listed_and_deleted(judged: Judged, name: str) -> None:
    graph = judged(SMALL, [{"type": "Item", "data": {"name": "a"}}])

    with proving("BRA-02"):
        graph.branch_create(name)
        graph.mutate(insert("Item", name="b"), branch=name)
        graph.reopen()
        graph.merge(name)
        graph.branch_delete(name)


@pytest.mark.requirement("BRA-02")
def test_a_name_is_trimmed(judged: Judged) -> None:
    graph = judged(SMALL)

    with proving("BRA-02"):
        graph.branch_create("  trimmed\t")
        assert sorted(graph.handle.branch_list()) == ["main", "trimmed"]


@pytest.mark.requirement("BRA-02")
def test_a_branch_from_a_source_that_is_not_there_is_refused(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SMALL)
    listing = forge(graph.uri).listing()

    with proving("BRA-02"):
        refused("not_found", lambda: graph.handle.branch_create("b", "nowhere"), "a branch of no branch")
        assert forge(graph.uri).listing() == listing


@pytest.mark.requirement("BRA-03")
@pytest.mark.parametrize("name", [LOCK_BRANCH, f"/{LOCK_BRANCH}"])
def test_the_lock_branch_is_nobodys_to_use(judged: Judged, forge: ForgeOf, name: str) -> None:
    graph = judged(SMALL, [{"type": "Item", "data": {"name": "a"}}])
    graph.branch_create("side")
    handle, anvil = graph.handle, forge(graph.uri)
    calls: dict[str, Callable[[], object]] = {
        "create": lambda: handle.branch_create(name),
        "create from": lambda: handle.branch_create(name, "side"),
        "create from the lock": lambda: handle.branch_create("other", name),
        "delete": lambda: handle.branch_delete(name),
        "load": lambda: handle.load(lines(), branch=name),
        "load that creates it": lambda: handle.load(lines(), branch=name, base="main"),
        "mutate": lambda: handle.mutate(insert("Item", name="b"), branch=name),
        "merge of it": lambda: handle.merge(name, "main"),
        "merge into it": lambda: handle.merge("main", name),
    }
    listing = anvil.listing()

    with proving("BRA-03"):
        for what, call in calls.items():
            refused(DEFINITE, call, f"{what} {name}")
        assert anvil.listing() == listing


@pytest.mark.requirement("BRA-03", "BRA-04")
def test_the_lock_branch_is_not_listed(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SMALL)
    graph.branch_create("side")
    graph.audited = False  # A lock that nobody explains is a finding.
    forge(graph.uri).create_manifest_branch(LOCK_BRANCH)

    handle = graph.engine.look(graph.uri)

    with proving("BRA-03", "BRA-04"):
        assert sorted(handle.branch_list()) == ["main", "side"]
        refused(DEFINITE, lambda: graph.engine.open(graph.uri).branch_delete(LOCK_BRANCH), "the deletion of the lock")
        assert LOCK_BRANCH in forge(graph.uri).branches()


@pytest.mark.requirement("BRA-05")
def test_a_branch_cannot_start_at_a_snapshot(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SMALL, [{"type": "Item", "data": {"name": "a"}}])
    commit = graph.handle.commits()[0]["graph_commit_id"]
    listing = forge(graph.uri).listing()

    with proving("BRA-05"):
        for source in (f"snapshot:{commit}", commit, "1", "main@1"):
            refused(DEFINITE, partial(graph.handle.branch_create, "b", source), f"a branch at {source}")
        assert forge(graph.uri).listing() == listing
        assert graph.handle.branch_list() == ["main"]


LOCKED: dict[str, Callable[[Handle], object]] = {
    "branch_create": lambda handle: handle.branch_create("new"),
    "branch_create_from": lambda handle: handle.branch_create("new", "side"),
    "branch_delete": lambda handle: handle.branch_delete("side"),
    "merge": lambda handle: handle.merge("side"),
    "schema_apply": lambda handle: handle.schema_apply(SMALL + "node Two {\n  name: String @key\n}\n"),
    "optimize": lambda handle: handle.optimize(),
    "cleanup": lambda handle: handle.cleanup(keep_versions=1),
    "ensure_indices": lambda handle: handle.ensure_indices(),
}


@pytest.mark.requirement("BRA-06")
@pytest.mark.parametrize("call", LOCKED.values(), ids=list(LOCKED))
def test_nothing_of_the_kind_is_done_while_a_schema_apply_holds_its_lock(
    judged: Judged, forge: ForgeOf, call: Callable[[Handle], object]
) -> None:
    graph = judged(SMALL, [{"type": "Item", "data": {"name": "a"}}])
    graph.branch_create("side")
    graph.mutate(insert("Item", name="b"), branch="side")
    anvil = forge(graph.uri)
    graph.audited = False  # A lock that nobody explains is a finding.
    anvil.create_manifest_branch(LOCK_BRANCH)
    handle = graph.engine.open(graph.uri)
    listing = anvil.listing()

    with proving("BRA-06"):
        refused("conflict", lambda: call(handle), "an operation beside a schema apply")
        assert anvil.listing() == listing


# -- copy on write -----------------------------------------------------------------------------------------------------


@pytest.mark.requirement("BRA-07", "BRA-08")
def test_a_branch_owns_a_table_from_its_first_write_to_it(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, PEOPLE)
    graph.branch_create("feat/one")
    anvil = forge(graph.uri)
    before = anvil.entries()

    graph.mutate(insert("Person", name="dan"), branch="feat/one")

    with proving("BRA-07"):
        tables = {each["table_key"]: each for each in graph.handle.snapshot("feat/one")["tables"]}
        assert {key: entry["table_branch"] for key, entry in tables.items()} == {
            PERSON: "feat/one",
            COMPANY: None,
            KNOWS: None,
            "edge:WorksAt": None,
        }
        own = anvil.entries("feat/one")
        assert {key: own[key] for key in own if key != PERSON} == {key: before[key] for key in own if key != PERSON}
        assert own[PERSON].path == before[PERSON].path
        forks = {name.split("/tree/")[0] for name in anvil.list() if "/tree/" in name} - {"__manifest"}
        assert forks == {before[PERSON].path}, "a table was forked that nobody wrote"
        assert anvil.storage(PERSON, "feat/one").version > before[PERSON].version
    with proving("BRA-08"):
        assert anvil.entries() == before and anvil.head(PERSON) == before[PERSON].version
        graph.mutate(delete("Person", where("name", "ann")))
        assert len(graph.handle.read(KNOWS, "feat/one")) == 2


@pytest.mark.requirement("BRA-07")
def test_a_fork_starts_from_what_the_branch_reads_and_not_from_the_tables_head(judged: Judged) -> None:
    graph = judged(SOCIAL, PEOPLE)
    graph.branch_create("old")
    graph.mutate(insert("Person", name="only-main"), update("Person", where("name", "bob"), age=99))

    with proving("BRA-07"):
        graph.mutate(insert("Person", name="dan"), branch="old")
        assert [row["id"] for row in graph.handle.read(PERSON, "old")] == ["ann", "bob", "cat", "dan"]


@pytest.mark.requirement("BRA-08")
def test_no_branch_sees_what_another_one_writes(judged: Judged) -> None:
    graph = judged(SOCIAL, PEOPLE)
    other = graph.engine.open(graph.uri)
    for name in ("one", "two"):
        graph.branch_create(name)

    with proving("BRA-08"):  # Every step is compared with the model on all branches.
        graph.mutate(update("Person", where("name", "bob"), age=1), branch="one")
        graph.mutate(update("Person", where("name", "bob"), age=2), branch="two", through=other)
        graph.mutate(update("Person", where("name", "bob"), age=3))
        graph.mutate(delete("Person", where("name", "ann")), branch="two")
        graph.load([person("eve", email="e@x")], branch="one", through=other)
        graph.load([person("eve", email="other@x")])
        graph.load([person("ann"), person("bob"), person("cat"), person("only")], "overwrite", branch="one")
        graph.mutate(insert_edge("Knows", "eve", "bob"), through=other)
        assert other.row(PERSON, "bob", "two")["age"] == 2  # type: ignore[index]
        assert graph.engine.open(graph.uri, branch="one").read(PERSON) == graph.handle.read(PERSON, "one")


# -- deleting ----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("BRA-12")
def test_a_branch_that_is_not_there_or_is_main_cannot_be_deleted(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SMALL)
    listing = forge(graph.uri).listing()

    with proving("BRA-12"):
        refused("not_found", lambda: graph.handle.branch_delete("nowhere"), "the deletion of no branch")
        refused(DEFINITE, lambda: graph.handle.branch_delete("main"), "the deletion of main")
        assert forge(graph.uri).listing() == listing


@pytest.mark.requirement("BRA-12")
def test_a_handle_cannot_delete_the_branch_that_it_is_bound_to(judged: Judged) -> None:
    graph = judged(SMALL)
    graph.engine.require_live_handles()
    graph.branch_create("mine")
    bound = graph.engine.open(graph.uri, branch="mine")

    with proving("BRA-12"):
        refused("conflict", lambda: bound.branch_delete("mine"), "the deletion of the handle's own branch")
        graph.compare("a refused deletion", "BRA-12")
        graph.branch_delete("mine")


@pytest.mark.requirement("BRA-12", "BRA-17")
@pytest.mark.parametrize("is_written", [False, True], ids=["unwritten", "written"])
def test_a_branch_that_others_were_made_from_cannot_be_deleted(judged: Judged, is_written: bool) -> None:
    graph = judged(SMALL, [{"type": "Item", "data": {"name": "a"}}])
    graph.branch_create("parent")
    if is_written:
        graph.mutate(insert("Item", name="p"), branch="parent")
    graph.branch_create("child", "parent")
    if is_written:
        graph.mutate(insert("Item", name="c"), branch="child")

    with proving("BRA-12"):
        refused("conflict", lambda: graph.branch_delete("parent"), "the deletion of a parent")
        graph.branch_create("unrelated/parent")
    with proving("BRA-17"):
        graph.mutate(insert("Item", name="d"), branch="child")
        graph.branch_delete("child")
        graph.branch_delete("parent")


@pytest.mark.requirement("BRA-13", "BRA-14")
def test_a_deleted_branch_is_gone_for_every_handle_and_can_be_made_again(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SMALL, [{"type": "Item", "data": {"name": "a"}}])
    graph.branch_create("side")
    graph.mutate(insert("Item", name="old"), branch="side")
    other = graph.engine.open(graph.uri)
    assert len(other.read(ITEM, "side")) == 2
    commits, version = graph.handle.commits(), forge(graph.uri).manifest_version()

    graph.branch_delete("side")

    with proving("BRA-13"):
        refused("not_found", lambda: other.read(ITEM, "side"), "a read of a deleted branch")
        refused("not_found", lambda: other.mutate(insert("Item", name="x"), branch="side"), "a write to it")
        assert graph.handle.commits() == commits and forge(graph.uri).manifest_version() == version
        assert not any("/tree/" in name for name in forge(graph.uri).list("nodes")), "its own storage is still there"
    with proving("BRA-14"):
        graph.branch_create("side")
        assert [row["id"] for row in other.read(ITEM, "side")] == ["a"]
        graph.mutate(insert("Item", name="new"), branch="side", through=other)
        graph.reopen()


@pytest.mark.requirement("BRA-08")
def test_a_handle_bound_to_a_branch_reads_and_writes_that_branch(judged: Judged, engine: Engine) -> None:
    graph: JudgedGraph = judged(SMALL, [{"type": "Item", "data": {"name": "a"}}])
    graph.branch_create("side")
    bound = engine.open(graph.uri, branch="side")

    with proving("BRA-08"):
        bound.mutate(insert("Item", name="b"))
        assert [row["id"] for row in bound.read(ITEM)] == ["a", "b"]
        assert [row["id"] for row in graph.handle.read(ITEM)] == ["a"]
