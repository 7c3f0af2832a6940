"""STO: how a graph is addressed, which variables lead to its store, and that it is the same graph on every store.

What is asked of the store itself is in `test_sto_contract.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest

from conformance.adapters import EngineError
from conformance.judge import Engine, proving
from conformance.judge.engine import Handle
from conformance.runner.plugin import ENGINES, ForgeOf, Judged
from conformance.suites.graphs import (
    PEOPLE,
    SOCIAL,
    delete,
    edge,
    insert,
    lines,
    node,
    person,
    update,
    where,
)
from fixtures.stores.catalog import Store
from fixtures.stores.s3_place import S3Place

NOTES: Final = "node Note {\n  name: String @key\n}"


def note(name: str) -> str:
    return lines(node("Note", name=name))


def ids(handle: Handle) -> list[str]:
    return [row["id"] for row in handle.read("node:Note")]


def is_s3(store: Store) -> bool:
    return store.name != "local"


# -- addresses ---------------------------------------------------------------------------------------------------------


def spellings(root: str) -> list[str]:
    """Other ways to write an address; those of a directory fold as text, so what they go through need not exist."""
    if root.startswith("s3://"):
        return [f"{root}/"]
    above, _, name = root.rpartition("/")
    return [
        f"{root}/",
        f"file://{root}",
        f"file://{root}/",
        f"{above}/./{name}",
        f"{above}/nowhere/../{name}",
        os.path.relpath(root),
    ]


@pytest.mark.requirement("STO-01")
def test_every_spelling_of_an_address_is_the_same_graph(engine: Engine, root: str, forge: ForgeOf) -> None:
    engine.init(root, NOTES)
    expected = []

    with proving("STO-01"):
        for number, spelling in enumerate(spellings(root)):
            expected.append(f"n{number}")
            engine.open(spelling).load(note(f"n{number}"))
            assert ids(engine.open(root)) == expected, f"written through {spelling}"
        report = forge(root).audit()
        assert not report.of("error"), "and no object lies where no graph would look"


@pytest.mark.requirement("STO-01")
def test_a_graph_can_be_created_by_any_spelling(engine: Engine, store: Store, forge: ForgeOf) -> None:
    with proving("STO-01"):
        for number in range(len(spellings(store.fresh_root()))):
            root = store.fresh_root()
            spelling = spellings(root)[number]
            engine.init(spelling, NOTES)
            assert "_schema.pg" in forge(root).list(""), f"created as {spelling}"
            with pytest.raises(EngineError):
                engine.init(root, NOTES)
            assert ids(engine.open(root)) == []


@pytest.mark.requirement("STO-01")
def test_a_graph_below_several_names_is_a_graph_like_any_other(engine: Engine, root: str, forge: ForgeOf) -> None:
    deep = f"{root}/one/two-three/f.our"
    engine.init(deep, NOTES)
    handle = engine.open(deep)

    with proving("STO-01"):
        handle.load(note("a"))
        handle.branch_create("b/c")
        handle.load(note("b"), branch="b/c")
        assert ids(handle) == ["a"] and len(handle.read("node:Note", "b/c")) == 2
        assert not forge(deep).audit().of("error")
        assert {name.split("/")[0] for name in forge(root).list("")} == {"one"}


# -- variables ---------------------------------------------------------------------------------------------------------

NOBODY: Final = "http://127.0.0.1:9"
SESSION_TOKEN: Final = "a session token"
TRUTHY: Final = ("1", "true", "TRUE", "True", "yes", "YES", "on", "ON")


def environments(env: dict[str, str]) -> dict[str, dict[str, str]]:
    """The variables of a store, written in other ways that lead there as well."""
    endpoint = env.get("AWS_ENDPOINT_URL_S3") or env.get("AWS_ENDPOINT_URL", "")
    without = {name: value for name, value in env.items() if not name.startswith("AWS_ENDPOINT_URL")}
    quiet = {name: value for name, value in env.items() if name != "AWS_ALLOW_HTTP"}
    return {
        "the general endpoint alone": {**without, "AWS_ENDPOINT_URL": endpoint},
        "the endpoint of S3 before the general one": {
            **env,
            "AWS_ENDPOINT_URL_S3": endpoint,
            "AWS_ENDPOINT_URL": NOBODY,
        },
        "an http endpoint allows http": quiet if endpoint.startswith("http://") else env,
        SESSION_TOKEN: {**env, "AWS_SESSION_TOKEN": "touchstone-session-token"},
        **{
            f"{word} is yes": {**env, "AWS_ALLOW_HTTP": word, "AWS_S3_FORCE_PATH_STYLE": word}
            for word in TRUTHY
            if env.get("AWS_S3_FORCE_PATH_STYLE")
        },
    }


@pytest.mark.long
@pytest.mark.requirement("STO-02")
def test_the_variables_of_aws_lead_to_the_store(request: pytest.FixtureRequest, engine: Engine, store: Store) -> None:
    if not is_s3(store):
        pytest.skip("a directory needs no variables")
    root = store.fresh_root()
    engine.init(root, NOTES)
    expected = []

    with proving("STO-02"):
        for number, (what, env) in enumerate(environments(dict(store.env)).items()):
            if what == SESSION_TOKEN and not S3Place.at(store.fresh_root(), env).lets_in():
                continue  # The store looks at tokens, and nobody gave it this one.
            other = request.config.stash[ENGINES].another(replace(store, env=env))
            try:
                expected.append(f"n{number:02}")
                other.open(root).load(note(f"n{number:02}"))
            finally:
                other.close()
            assert ids(engine.open(root)) == expected, what


# -- renames that are two steps ----------------------------------------------------------------------------------------

SCHEMA_FILES: Final = ("_schema.pg", "_schema.ir.json", "__schema_state.json")


@pytest.mark.requirement("STO-05")
@pytest.mark.parametrize(
    "left", [SCHEMA_FILES, *((name,) for name in SCHEMA_FILES)], ids=lambda left: "+".join(left).replace("_", "")
)
def test_a_rename_that_was_copied_and_not_deleted_is_finished_on_open(
    judged: Judged, forge: ForgeOf, left: tuple[str, ...]
) -> None:
    """A schema apply ends with renames. Its process died after a copy, so that a file has both of its names."""
    graph = judged(NOTES, [node("Note", name="a")])
    wider = NOTES.replace("name: String @key", "name: String @key\n  text: String?")
    graph.schema_apply(wider)
    disk = forge(graph.uri)
    for name in left:
        content = disk.read(name)
        assert content is not None, f"a graph has the file {name}"
        disk.write(f"{name}.staging", content)

    with proving("STO-05"):
        assert [row["id"] for row in graph.engine.look(graph.uri).read("node:Note")] == ["a"]
        graph.reopen()
        assert [name for name in disk.list("") if name.endswith(".staging")] == []
        graph.mutate(insert("Note", name="b", text="new"))
        assert graph.handle.schema_apply(wider)["applied"] is False, "the new schema is the accepted one"


# -- the same everywhere -----------------------------------------------------------------------------------------------


def history(handle: Handle) -> list[object]:
    """A life of a graph, and all that an engine answered that does not depend on ids and clocks."""
    seen: list[object] = []

    def did(call: Callable[[], Any], *fields: str) -> None:
        try:
            answer = call()
            seen.append([answer[name] for name in fields])
        except EngineError as error:
            seen.append((error.kind, sorted(str(each) for each in error.details.get("conflicts", []))))

    did(lambda: handle.load(lines(*PEOPLE), "append"), "nodes_loaded", "edges_loaded")
    did(lambda: handle.load(lines(person("ann")), "append"))
    did(lambda: handle.mutate(update("Person", where("name", "bob"), age=1)), "affected_nodes", "affected_edges")
    handle.branch_create("a/b")
    did(lambda: handle.branch_create("a/b"))
    did(lambda: handle.load(lines(person("dan"), edge("Knows", "dan", "ann", id="k3")), branch="a/b"), "nodes_loaded")
    did(lambda: handle.mutate(delete("Person", where("name", "cat"))), "affected_nodes", "affected_edges")
    did(lambda: handle.merge("a/b", "main"), "outcome")
    did(lambda: handle.merge("a/b", "main"), "outcome")
    did(lambda: handle.load(lines(edge("Knows", "ann", "nobody"))))
    did(lambda: handle.merge("main", "a/b"), "outcome")
    did(lambda: handle.branch_delete("nobody"))
    seen.append([handle.export("main"), handle.export("a/b"), sorted(handle.branch_list())])
    seen.append([len(handle.commits("main")), len(handle.commits("a/b"))])
    versions = [each["manifest_version"] for each in handle.commits("main")][1:]
    seen.append([handle.read("node:Person", version=version) for version in versions])
    handle.branch_delete("a/b")
    did(lambda: handle.export("a/b"))
    return seen


@pytest.mark.requirement("STO-06")
def test_a_history_on_this_store_is_the_same_as_in_a_directory(
    engine: Engine, store: Store, root: str, tmp_path: Any
) -> None:
    """The scheme of the address alone decides where a graph lies, so one engine can do both."""
    if not is_s3(store):
        pytest.skip("this store is a directory")
    handles = []
    for uri in (root, str(tmp_path / "graph")):
        engine.init(uri, SOCIAL)
        handles.append(engine.open(uri))

    with proving("STO-06"):
        here, there = (history(handle) for handle in handles)
        assert here == there
