"""Names, paths and manifest rows: the exact facts of the format."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.errors import BadRequest, Internal
from reference.format.manifest import (
    MANIFEST_SCHEMA,
    GraphCommit,
    ManifestState,
    Row,
    TableEntry,
    commit_row,
    decode_commit,
    head_object_id,
    head_row,
    rows_to_table,
    table_row,
    table_version_row,
    tombstone_row,
    version_object_id,
)
from reference.format.names import branch_location, fnv1a_32, fnv1a_64, parse_table_key, table_path


@pytest.mark.requirement("LAY-02")
@pytest.mark.parametrize(
    ("name", "digest"),
    [
        ("", "cbf29ce484222325"),
        ("Person", "40d76f1f51639ec0"),
        ("Company", "7cb4e55c59663b1c"),
        ("Knows", "602a25a3bd0b455b"),
        ("WorksAt", "844eefbe5068b644"),
        ("Document", "a311a24c1471a974"),
        ("person", "5bd49c0b7a0b61e0"),
    ],
)
def test_a_type_name_hashes_to_sixteen_hex_digits(name: str, digest: str) -> None:
    assert f"{fnv1a_64(name):016x}" == digest


@pytest.mark.requirement("LAY-02", "LAY-03", "LAY-05")
def test_a_table_lives_at_the_hash_of_its_bare_type_name() -> None:
    assert table_path("node:Person") == "nodes/40d76f1f51639ec0"
    assert table_path("edge:Knows") == "edges/602a25a3bd0b455b"
    assert branch_location("nodes/x", None) == "nodes/x"
    assert branch_location("nodes/x", "a/b") == "nodes/x/tree/a/b"


@pytest.mark.requirement("LAY-03")
@pytest.mark.parametrize("key", ["Person", "nodes:Person", "node:", ":Person", "", "interface:Named", "NODE:Person"])
def test_any_other_prefix_is_no_table_key(key: str) -> None:
    with pytest.raises(BadRequest) as refused:
        parse_table_key(key)
    assert refused.value.code == "invalid_table_key"


@pytest.mark.requirement("SCH-14")
def test_ids_of_the_schema_are_fnv_32_and_never_zero() -> None:
    assert fnv1a_32("node:Person") == 3227219152
    assert fnv1a_32("") != 0


@pytest.mark.requirement("MAN-01", "MAN-12")
def test_the_manifest_schema_is_exact() -> None:
    shape = [(field.name, str(field.type), field.nullable) for field in MANIFEST_SCHEMA]
    assert shape == [
        ("object_id", "string", False),
        ("object_type", "string", False),
        ("location", "string", True),
        ("metadata", "string", True),
        ("base_objects", "list<item: string>", True),
        ("table_key", "string", False),
        ("table_version", "uint64", True),
        ("table_branch", "string", True),
        ("row_count", "uint64", True),
    ]
    assert MANIFEST_SCHEMA.field("object_id").metadata == {b"lance-schema:unenforced-primary-key": b"true"}


@pytest.mark.requirement("MAN-02")
@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_version_ids_sort_as_text_like_their_numbers(one: int, other: int) -> None:
    as_text = version_object_id("node:Person", one) < version_object_id("node:Person", other)
    assert as_text == (one < other)


@pytest.mark.requirement("MAN-01", "LIN-01")
def test_rows_are_encoded_with_the_keys_the_format_names() -> None:
    entry = TableEntry("node:Person", "nodes/40d76f1f51639ec0", 2, "feat", 7)
    row = table_version_row(entry, "p/_versions/1.manifest")
    assert row["object_id"] == "node:Person$00000000000000000002"
    assert list(json.loads(row["metadata"])) == ["manifest_path", "manifest_size", "e_tag", "naming_scheme"]
    assert (row["table_version"], row["table_branch"], row["row_count"]) == (2, "feat", 7)
    genesis = GraphCommit("01A", None, 1, None, None, None, 5)
    assert json.loads(commit_row(genesis)["metadata"]) == {"created_at": 5}
    assert commit_row(genesis)["table_key"] == ""
    assert json.loads(head_row(genesis)["metadata"]) == {"head_commit_id": "01A"}
    assert head_object_id(None) == "graph_head:main"
    assert tombstone_row("node:Person", 3)["object_id"] == "node:Person$tombstone$00000000000000000003"


@pytest.mark.requirement("LIN-01")
@given(
    st.builds(
        GraphCommit,
        graph_commit_id=st.text(min_size=1, max_size=26),
        manifest_branch=st.none() | st.text(min_size=1, max_size=9),
        manifest_version=st.integers(1, 2**40),
        parent_commit_id=st.none() | st.text(min_size=1, max_size=9),
        merged_parent_commit_id=st.none() | st.text(min_size=1, max_size=9),
        actor_id=st.none() | st.text(min_size=1, max_size=9),
        created_at=st.integers(0, 2**53),
    )
)
def test_a_commit_comes_back_from_its_row(commit: GraphCommit) -> None:
    assert decode_commit(commit_row(commit)) == commit


def _state(*rows: Row) -> ManifestState:
    state = ManifestState()
    state.fold(rows)
    return state


def _pin(version: int, branch: str | None = None, rows: int = 0) -> Row:
    return table_version_row(TableEntry("node:T", "nodes/t", version, branch, rows), "p")


@pytest.mark.requirement("MAN-09", "MAN-10")
def test_a_snapshot_pins_the_highest_version_whatever_branch_owns_it() -> None:
    state = _state(_pin(3, "b", 4), _pin(2), table_row("node:T", "nodes/t"))
    assert state.entries() == {"node:T": TableEntry("node:T", "nodes/t", 3, "b", 4)}


@pytest.mark.requirement("MAN-09", "TMB-01", "PUB-04")
@pytest.mark.parametrize(("tombstone", "visible"), [(1, True), (2, False), (3, False)])
def test_a_tombstone_hides_every_version_up_to_its_own(tombstone: int, visible: bool) -> None:
    state = _state(table_row("node:T", "nodes/t"), _pin(2), tombstone_row("node:T", tombstone))
    assert ("node:T" in state.entries()) is visible
    assert state.visible_version("node:T") == (2 if visible else tombstone)
    assert state.visible_version("node:Unknown") == 0


@pytest.mark.requirement("MAN-04")
def test_an_unknown_object_type_is_ignored() -> None:
    future = dict(table_row("node:X", "nodes/x"), object_type="future", object_id="f")
    assert _state(future, table_row("node:T", "nodes/t"), _pin(1)).entries().keys() == {"node:T"}


@pytest.mark.requirement("MAN-03")
@pytest.mark.parametrize(
    "rows",
    [
        [dict(table_row("node:T", "nodes/t"), location=None)],
        [table_row("node:T", "nodes/t"), dict(_pin(1), table_version=None)],
        [table_row("node:T", "nodes/t"), dict(_pin(1), row_count=None)],
        [table_row("node:T", "nodes/t"), dict(_pin(1), metadata=None)],
        [_pin(1)],
        [table_row("node:T", "nodes/t"), dict(tombstone_row("node:T", 1), table_version=None)],
    ],
)
def test_a_broken_row_is_an_error_and_never_skipped(rows: list[Row]) -> None:
    with pytest.raises(Internal) as found:
        _state(*rows)
    assert found.value.code == "manifest_corrupt"


@pytest.mark.requirement("MAN-05")
@pytest.mark.parametrize("metadata", [None, "{", "[]", "{}"])
def test_broken_lineage_fails_when_lineage_is_read_and_not_before(metadata: str | None) -> None:
    broken = dict(commit_row(GraphCommit("01A", None, 1, None, None, None, 5)), metadata=metadata)
    state = _state(table_row("node:T", "nodes/t"), _pin(1), broken)
    assert state.entries().keys() == {"node:T"}
    with pytest.raises(Internal):
        state.head()


@pytest.mark.requirement("LIN-05")
@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3), st.uuids()), min_size=1, max_size=8, unique=True))
def test_the_head_is_the_greatest_by_version_time_and_id(found: list[tuple[int, int, object]]) -> None:
    commits = [GraphCommit(str(uid), None, version, None, None, None, time) for version, time, uid in found]
    head = _state(*(commit_row(commit) for commit in commits)).head()
    assert head == max(commits, key=lambda commit: (commit.manifest_version, commit.created_at, commit.graph_commit_id))


@pytest.mark.requirement("MAN-01")
def test_rows_fit_the_arrow_schema() -> None:
    table = rows_to_table([table_row("node:T", "nodes/t"), _pin(1)])
    assert table.schema.equals(MANIFEST_SCHEMA, check_metadata=True)
    assert table.column("base_objects").null_count == 2
