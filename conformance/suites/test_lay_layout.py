"""LAY: where the bytes of a graph are, and what they are called.

Two engines share a graph only if each finds what the other wrote: tables under the hashes of their types, branches
under their names, schema files and sidecars at the root, all of it relative to a place from which it can be moved.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import lance
import pyarrow as pa
import pytest

from conformance.audit.names import AUDIT_DIR, LEGACY_DIRS, SCHEMA_FILES, STAGING_FILES, fnv1a_64
from conformance.audit.schema import compact
from conformance.judge import Engine, JudgedGraph, proving
from conformance.runner.plugin import ForgeOf, Judged
from conformance.suites.graphs import (
    EVERYTHING,
    EVOLVED,
    PEOPLE,
    SOCIAL,
    delete,
    insert,
    lines,
    node,
    person,
    place_golden,
    update,
    where,
)
from conformance.suites.refusals import refused
from fixtures import golden
from fixtures.forge import Forge

# The vectors of the format, and names that a sloppy hash or a sloppy folder name would confuse.
HASHES = {
    "node:Person": "nodes/40d76f1f51639ec0",
    "node:Company": "nodes/7cb4e55c59663b1c",
    "node:Document": "nodes/a311a24c1471a974",
    "edge:Knows": "edges/602a25a3bd0b455b",
    "edge:WorksAt": "edges/844eefbe5068b644",
}
NAMES = ["A", "AZ", "Aa", "A_x", "Node", "Main", "Tree9", "X" * 60]


def root_names(forge: Forge) -> set[str]:
    """What lies directly below the root."""
    return {name.partition("/")[0] for name in forge.list("")}


def tables_of(graph: JudgedGraph, branch: str | None = None) -> dict[str, Any]:
    return {entry["table_key"]: entry for entry in graph.handle.snapshot(branch)["tables"]}


# -- tables and their places -------------------------------------------------------------------------------------------


@pytest.mark.requirement("LAY-01", "LAY-02")
def test_a_graph_is_a_manifest_and_one_table_per_type(judged: Judged, forge: ForgeOf) -> None:
    nodes = ["Person", "Company", "Document", *NAMES]
    source = "".join(f"node {name} {{\n  name: String @key\n}}\n" for name in nodes)
    graph = judged(source + "edge Knows: Person -> Person\nedge WorksAt: Person -> Company\n", [person("ann")])

    names = forge(graph.uri).list("")
    places = {key: entry["table_path"] for key, entry in tables_of(graph).items()}

    with proving("LAY-01"):
        assert any(name.startswith("__manifest/_versions/") for name in names)
        assert not any("__manifest" in name.split("/")[1:] for name in names), "only the root has a manifest"
    with proving("LAY-02"):
        assert places == HASHES | {f"node:{name}": f"nodes/{fnv1a_64(name)}" for name in NAMES}
        for path in places.values():
            assert any(name.startswith(f"{path}/_versions/") for name in names), f"no dataset lies at {path}"
        folders = {"/".join(name.split("/")[:2]) for name in names if name.startswith(("nodes/", "edges/"))}
        assert folders == set(places.values()), "there are directories that belong to no type"


@pytest.mark.requirement("LAY-01")
def test_a_slash_at_the_end_of_an_address_changes_nothing(engine: Engine, forge: ForgeOf, root: str) -> None:
    engine.init(f"{root}/", SOCIAL)
    engine.open(root).load(lines(person("ann")))

    with proving("LAY-01"):
        assert {"__manifest", "nodes", "edges"} <= root_names(forge(root))
        assert [row["id"] for row in engine.open(f"{root}/").read("node:Person")] == ["ann"]


@pytest.mark.requirement("LAY-03")
def test_a_table_key_with_another_prefix_is_a_bad_request(judged: Judged) -> None:
    graph = judged(SOCIAL, [person("ann")])

    with proving("LAY-03"):
        assert set(tables_of(graph)) == {"node:Person", "node:Company", "edge:Knows", "edge:WorksAt"}
        for key in ("table:Person", "nodes:Person", "Node:Person", "Person", ":Person", ""):
            refused("bad_request", partial(graph.handle.read, key), f"a read of {key!r}")


@pytest.mark.requirement("LAY-04")
def test_a_moved_graph_reads_and_writes_as_before(judged: Judged, engine: Engine, forge: ForgeOf, root: str) -> None:
    graph = judged(SOCIAL, PEOPLE)
    graph.mutate(update("Person", where("name", "bob"), age=32))
    older = graph.handle.snapshot()["manifest_version"]
    graph.mutate(delete("Person", where("name", "ann")))
    before, there = graph.handle.export(), forge(graph.uri)

    with proving("LAY-04"):
        locations = [row["location"] for row in there.rows() if row["object_type"] == "table"]
        assert sorted(locations) == sorted(entry["table_path"] for entry in tables_of(graph).values())
        assert not any(place.startswith("/") or ":" in place for place in locations)

    there.copy_to(forge(root))
    for name in there.list(""):
        there.delete(name)
    graph.audited = False  # Nothing is left there to be read.

    with proving("LAY-04"):
        moved = engine.open(root)
        assert moved.export() == before
        assert [row["age"] for row in moved.read("node:Person", version=older)] == [30, 32, None]
        moved.mutate(insert("Person", name="dan"))
        assert [row["id"] for row in moved.read("node:Person")] == ["bob", "cat", "dan"]


@pytest.mark.requirement("LAY-04")
def test_a_graph_of_the_public_engine_reads_wherever_it_is_put(engine: Engine, forge: ForgeOf, root: str) -> None:
    place_golden("social", forge(root))

    with proving("LAY-04"):
        found, meant = engine.open(root), golden.expect("social")
        assert found.export() == meant["export"]["main"]
        assert found.snapshot() == meant["snapshot"]["main"]


@pytest.mark.requirement("LAY-05", "LAY-12")
def test_a_branch_lies_below_the_tables_that_it_has_written(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, PEOPLE)
    forked_at = {}
    for branch in ("plain", "feat/one", "feat/one/deep"):
        forked_at[branch] = forge(graph.uri).manifest_version()
        graph.branch_create(branch)
        graph.mutate(insert("Person", name="dan"), branch=branch)
        graph.mutate(insert("Company", name="initech"))
    there = forge(graph.uri)
    names = there.list("")

    with proving("LAY-05"):
        person_path, company_path = HASHES["node:Person"], HASHES["node:Company"]
        for branch in forked_at:
            entry = tables_of(graph, branch)["node:Person"]
            assert (entry["table_path"], entry["table_branch"]) == (person_path, branch)
            place = f"{there.uri}/{person_path}/tree/{branch}"
            assert any(name.startswith(f"{person_path}/tree/{branch}/_versions/") for name in names)
            assert _rows_at(there, place, entry["table_version"]) == 4
        assert not any(name.startswith(f"{company_path}/tree/") for name in names), "no branch has written it"
        assert all(entry["table_branch"] is None for entry in tables_of(graph).values())
    with proving("LAY-12"):
        assert there.branches() == sorted(forked_at)
        refs = [name for name in names if "_refs/branches/" in name and name.startswith("__manifest/")]
        assert sorted(refs) == [
            "__manifest/_refs/branches/feat%2Fone%2Fdeep.json",
            "__manifest/_refs/branches/feat%2Fone.json",
            "__manifest/_refs/branches/plain.json",
        ]
        assert any(name.startswith("__manifest/tree/feat/one/_versions/") for name in names)
        assert not root_names(there) & {"_refs", "tree"}
        first = {name: min(each["version"] for each in there.manifest(name).versions()) for name in forked_at}
        assert first == forked_at, "a branch starts at the version number of its source"


def _rows_at(forge: Forge, place: str, version: int) -> int:
    return int(lance.dataset(place, version=version, storage_options=forge.storage_options).count_rows())


@pytest.mark.requirement("LAY-12")
def test_a_deleted_branch_leaves_no_ref(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, PEOPLE)
    graph.branch_create("feat/one")
    graph.mutate(insert("Person", name="dan"), branch="feat/one")

    graph.branch_delete("feat/one")

    with proving("LAY-12"):
        assert forge(graph.uri).branches() == []
        assert "__manifest/_refs/branches/feat%2Fone.json" not in forge(graph.uri).list("__manifest")


# -- datasets ----------------------------------------------------------------------------------------------------------


def check_dataset(handle: lance.LanceDataset, what: str) -> None:
    assert handle.has_stable_row_ids, f"{what} has no stable row ids"
    assert str(handle.data_storage_version) == "2.2", f"{what} has file version {handle.data_storage_version}"
    automatic = [key for key in handle.config() if key.startswith("lance.auto_cleanup")]
    assert not automatic, f"{what} is cleaned up by itself: {automatic}"
    columns = ["_row_created_at_version", "_row_last_updated_at_version"]
    assert handle.to_table(columns=columns).num_rows == handle.count_rows(), f"{what} does not know its rows' versions"


@pytest.mark.requirement("LAY-06")
def test_every_dataset_has_stable_row_ids_and_no_automatic_cleanup(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, PEOPLE)
    if graph.engine.supports("schema_apply"):
        graph.schema_apply(EVOLVED)
    if graph.engine.supports("branch_create"):
        graph.branch_create("draft")
        graph.load(PEOPLE, branch="draft")
    found = forge(graph.uri)

    with proving("LAY-06"):
        for branch in graph.model.branch_list():
            check_dataset(found.manifest(branch), f"__manifest of {branch}")
            for key in tables_of(graph, branch):
                check_dataset(found.table(key, branch), f"{key} of {branch}")


@pytest.mark.requirement("LAY-06", "LAY-08", "LAY-09")
def test_the_audit_table_comes_with_the_first_recovery(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, PEOPLE)
    there, records = forge(graph.uri), lines(person("dan"))
    before = root_names(there)
    operation_id = there.crash_between_commit_and_publish(lambda: graph.handle.load(records), writer_kind="Load")
    assert there.list("__recovery") == [f"__recovery/{operation_id}.json"]

    recovered = graph.engine.open(graph.uri)
    graph.audited = False  # The model does not know of the recovered row; the auditor is asked below.

    with proving("LAY-09"):
        assert [each["operation_id"] for each in recovered.recovered] == [operation_id], "it looked for it elsewhere"
        assert there.sidecars() == {}
    with proving("LAY-08"):
        assert AUDIT_DIR not in before
        assert AUDIT_DIR in root_names(there)
    with proving("LAY-06"):
        place = f"{there.uri}/{AUDIT_DIR}"
        check_dataset(lance.dataset(place, storage_options=there.storage_options), AUDIT_DIR)
    graph.audit()


@pytest.mark.requirement("LAY-07")
def test_a_rewritten_table_keeps_its_stable_row_ids(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, PEOPLE)
    graph.load([person("ann"), person("bob"), person("cat"), person("eve")], mode="overwrite")
    with proving("LAY-07"):
        check_dataset(forge(graph.uri).table("node:Person"), "an overwritten table")
    if not graph.engine.supports("schema_apply"):
        return
    changes = {"a new": EVOLVED, "a renamed": EVOLVED.replace("age: I32?", 'years: I32? @rename_from("age")')}
    for which, source in changes.items():
        graph.schema_apply(source)
        with proving("LAY-07"):
            check_dataset(forge(graph.uri).table("node:Person"), f"a table with {which} property")


@pytest.mark.requirement("LAY-13")
def test_columns_are_ids_and_then_the_properties_by_name(judged: Judged, forge: ForgeOf) -> None:
    source = """
    interface Named {
      zeta: String?
      label: String?
    }
    node Thing implements Named {
      zeta: String?
      label: String?
      mass: F64
      code: String @key
      aZ: I64?
      ab: Bool
    }
    edge Linked: Thing -> Thing {
      weight: F32?
      cause: String
    }
    """
    graph = judged(source, [node("Thing", code="a", mass=1.5, ab=True)])
    texts = {"id": pa.string(), "src": pa.string(), "dst": pa.string()}

    for key, own, properties in (
        ("node:Thing", ["id"], ["aZ", "ab", "code", "label", "mass", "zeta"]),
        ("edge:Linked", ["id", "src", "dst"], ["cause", "weight"]),
    ):
        schema = forge(graph.uri).table(key).schema
        with proving("LAY-13"):
            assert schema.names == [*own, *properties]
            assert [schema.field(name) for name in own] == [pa.field(name, texts[name], nullable=False) for name in own]
            needed = {name for name in properties if not schema.field(name).nullable}
            assert needed == {"ab", "code", "mass", "cause"} & set(properties)


@pytest.mark.requirement("LAY-14")
def test_a_new_graph_has_every_table_empty_at_version_one(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL)

    with proving("LAY-14"):
        found = {(key, e["table_version"], e["row_count"], e["table_branch"]) for key, e in tables_of(graph).items()}
        assert found == {(key, 1, 0, None) for key in ("node:Person", "node:Company", "edge:Knows", "edge:WorksAt")}
        for key in tables_of(graph):
            assert (forge(graph.uri).head(key), forge(graph.uri).table(key).count_rows()) == (1, 0)
            assert graph.handle.read(key) == []


@pytest.mark.requirement("LAY-16")
def test_a_blob_is_its_content_or_a_uri(judged: Judged) -> None:
    photos = {
        "short": "base64:aGk=",
        "signs": "base64:+/+/AA==",
        "nothing": "base64:",
        "file": "file:///tmp/base64:aGk=",
        "bucket": "s3://elsewhere/photo.png",
        "none": None,
    }
    graph = judged(EVERYTHING, [node("Thing", name=name, photo=photo) for name, photo in photos.items()])
    graph.mutate(update("Thing", where("name", "none"), photo="base64:/w=="))

    with proving("LAY-16"):
        found = {row["id"]: row["photo"] for row in graph.handle.read("node:Thing")}
        assert found == photos | {"none": "base64:/w=="}


# -- files beside the tables -------------------------------------------------------------------------------------------


@pytest.mark.requirement("LAY-08", "LAY-09")
def test_operations_leave_no_retired_tables_and_no_sidecars(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL)
    steps: dict[str, Callable[[], object]] = {
        "init": lambda: None,
        "a load": lambda: graph.load(PEOPLE),
        "a mutation": lambda: graph.mutate(update("Person", where("name", "bob"), age=1)),
        "a delete": lambda: graph.mutate(delete("Person", where("name", "cat"))),
        "a branch": lambda: graph.branch_create("draft"),
        "a write on a branch": lambda: graph.mutate(insert("Person", name="dan"), branch="draft"),
        "a write on main": lambda: graph.mutate(insert("Person", name="eve")),
        "a merge": lambda: graph.merge("draft"),
        "a deleted branch": lambda: graph.branch_delete("draft"),
        "a schema apply": lambda: graph.schema_apply(EVOLVED),
        "optimize": graph.optimize,
    }
    for what, step in steps.items():
        step()
        there = root_names(forge(graph.uri))
        with proving("LAY-08"):
            assert not there & LEGACY_DIRS, f"{what} made a retired table"
            assert AUDIT_DIR not in there, f"{what} made the audit table, and nothing was recovered"
        with proving("LAY-09"):
            assert forge(graph.uri).sidecars() == {}, f"{what} left a sidecar"


@pytest.mark.requirement("LAY-10", "LAY-11")
def test_the_schema_is_three_files_at_the_root(judged: Judged, forge: ForgeOf) -> None:
    source = f"// Zürich, not normalized: e\u0301 \n\n{SOCIAL}\t\n\n"
    graph = judged(source, PEOPLE)
    for text in (source, f"{EVOLVED}// no newline at the end"):
        graph.schema_apply(text)
        there = forge(graph.uri)
        with proving("LAY-10"):
            assert there.read("_schema.pg") == text.encode(), "the source is kept as it was given"
            assert set(SCHEMA_FILES) <= root_names(there)
            assert not set(STAGING_FILES) & root_names(there)
        with proving("LAY-11"):
            ir = (there.read("_schema.ir.json") or b"").decode()
            digest = hashlib.sha256(compact(ir).encode()).hexdigest()
            assert json.loads(there.read("__schema_state.json") or b"") == {
                "format_version": 1,
                "schema_ir_hash": f"sha256:{digest}",
                "schema_identity_version": 1,
            }


@pytest.mark.requirement("LAY-10")
def test_staged_schema_files_are_found_by_their_names(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, PEOPLE)
    there = forge(graph.uri)
    there.crash_between_commit_and_publish(lambda: graph.handle.schema_apply(EVOLVED), writer_kind="SchemaApply")
    assert set(STAGING_FILES) <= root_names(there)

    graph.engine.open(graph.uri)

    with proving("LAY-10"):
        assert there.read("_schema.pg") == EVOLVED.encode(), "the staged schema was not put in place"
        assert not set(STAGING_FILES) & root_names(there)


@pytest.mark.requirement("LAY-15")
def test_what_is_no_sidecar_in_the_recovery_directory_is_ignored(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, PEOPLE)
    there = forge(graph.uri)
    names = ["note.txt", "01ARZ3NDEKTSV4RRFFQ69G5FAV.json.bak", "01ARZ3NDEKTSV4RRFFQ69G5FAV.JSON", "json", "x.json#12"]
    for name in names:
        there.write(f"__recovery/{name}", b"{ this is nothing")

    with proving("LAY-15"):
        assert graph.reopen().recovered == ()
        graph.mutate(insert("Person", name="dan"))
        assert graph.engine.look(graph.uri).export() == graph.model.export()
        assert there.list("__recovery") == sorted(f"__recovery/{name}" for name in names), (
            "they are none of its business"
        )
