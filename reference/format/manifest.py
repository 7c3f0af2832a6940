"""The rows of `__manifest`: five object types, their encoding, and what they mean together.

A graph's whole catalog is one Lance table. `table` rows register tables, `table_version` rows pin them,
`table_tombstone` rows hide them, `graph_commit` and `graph_head` rows are the lineage. Rows are only ever added or,
for heads and owner hand-offs, replaced; so the state of a branch is a fold over its rows [MAN].
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from reference.errors import Internal
from reference.format.names import MAIN_BRANCH

PRIMARY_KEY_METADATA = {b"lance-schema:unenforced-primary-key": b"true"}
MANIFEST_CONFIG = {"table_version_management": "true"}
GENESIS_MANIFEST_VERSION = 1

MANIFEST_SCHEMA = pa.schema(
    [
        pa.field("object_id", pa.string(), nullable=False, metadata=PRIMARY_KEY_METADATA),
        pa.field("object_type", pa.string(), nullable=False),
        pa.field("location", pa.string()),
        pa.field("metadata", pa.string()),
        pa.field("base_objects", pa.list_(pa.field("item", pa.string()))),
        pa.field("table_key", pa.string(), nullable=False),
        pa.field("table_version", pa.uint64()),
        pa.field("table_branch", pa.string()),
        pa.field("row_count", pa.uint64()),
    ]
)

Row = dict[str, Any]


def version_object_id(table_key: str, version: int) -> str:
    """Padded so that the order of ids as text is the order of versions [MAN-02]."""
    return f"{table_key}${version:020d}"


def tombstone_object_id(table_key: str, version: int) -> str:
    """The id of the row that hides every version of a table up to `version`."""
    return f"{table_key}$tombstone${version:020d}"


def head_object_id(branch: str | None) -> str:
    """The id of the row on which all publishes of one branch contend."""
    return f"graph_head:{branch or MAIN_BRANCH}"


@dataclass(frozen=True)
class TableEntry:
    """One table as a snapshot pins it. `branch` says where its data lives; None is main."""

    table_key: str
    path: str
    version: int
    branch: str | None
    row_count: int

    @property
    def pin(self) -> tuple[int, str | None]:
        """What makes two entries the same state of a table."""
        return self.version, self.branch

    def to_json(self) -> dict[str, Any]:
        place = {"table_path": self.path, "table_version": self.version, "table_branch": self.branch}
        return {"table_key": self.table_key, **place, "row_count": self.row_count}


@dataclass(frozen=True)
class GraphCommit:
    """One commit of the graph, whole, from its one row [LIN-01]."""

    graph_commit_id: str
    manifest_branch: str | None
    manifest_version: int
    parent_commit_id: str | None
    merged_parent_commit_id: str | None
    actor_id: str | None
    created_at: int

    @property
    def order(self) -> tuple[int, int, str]:
        """Commits of a branch are listed by this, and its greatest is the head [LIN-05]."""
        return self.manifest_version, self.created_at, self.graph_commit_id

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


def _row(object_id: str, object_type: str, table_key: str, **rest: Any) -> Row:
    row: Row = dict.fromkeys(MANIFEST_SCHEMA.names)
    row.update(object_id=object_id, object_type=object_type, table_key=table_key, **rest)
    return row


def _compact(value: Mapping[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def table_row(table_key: str, path: str) -> Row:
    """Registers a table."""
    return _row(table_key, "table", table_key, location=path)


def table_version_row(entry: TableEntry, manifest_path: str) -> Row:
    """Pins one version of a table. Of the Lance manifest only its path is recorded: readers need no more."""
    metadata = {"manifest_path": manifest_path, "manifest_size": None, "e_tag": None, "naming_scheme": "V2"}
    return _row(
        version_object_id(entry.table_key, entry.version),
        "table_version",
        entry.table_key,
        metadata=_compact(metadata),
        table_version=entry.version,
        table_branch=entry.branch,
        row_count=entry.row_count,
    )


def tombstone_row(table_key: str, version: int) -> Row:
    """Hides a table from `version` down."""
    return _row(tombstone_object_id(table_key, version), "table_tombstone", table_key, table_version=version)


def commit_row(commit: GraphCommit) -> Row:
    """The lineage of one publish. Absent parents and actors are left out of the JSON, not written as null."""
    metadata = {
        "parent_commit_id": commit.parent_commit_id,
        "merged_parent_commit_id": commit.merged_parent_commit_id,
        "actor_id": commit.actor_id,
        "created_at": commit.created_at,
    }
    return _row(
        commit.graph_commit_id,
        "graph_commit",
        "",
        metadata=_compact({key: value for key, value in metadata.items() if value is not None}),
        table_version=commit.manifest_version,
        table_branch=commit.manifest_branch,
    )


def head_row(commit: GraphCommit) -> Row:
    """The row of a branch's head: written by every publish so that publishes of one branch exclude each other."""
    metadata = {"head_commit_id": commit.graph_commit_id, "parent_commit_id": commit.parent_commit_id}
    return _row(
        head_object_id(commit.manifest_branch),
        "graph_head",
        "",
        metadata=_compact({key: value for key, value in metadata.items() if value is not None}),
    )


def rows_to_table(rows: Iterable[Row]) -> pa.Table:
    """Rows as Arrow, in the manifest's schema."""
    return pa.Table.from_pylist(list(rows), schema=MANIFEST_SCHEMA)


def _lineage_metadata(row: Row) -> dict[str, Any]:
    try:
        metadata = json.loads(row["metadata"])
    except (TypeError, ValueError):
        metadata = None
    if not isinstance(metadata, dict):
        raise _corrupt(row, f"the metadata of a {row['object_type']} row is no JSON object")
    return metadata


def decode_commit(row: Row) -> GraphCommit:
    """A graph commit from its row; a row that cannot be decoded is an error, never skipped [MAN-05]."""
    metadata = _lineage_metadata(row)
    created_at, version = metadata.get("created_at"), row["table_version"]
    if not isinstance(created_at, int) or not isinstance(version, int):
        raise _corrupt(row, "a graph_commit row lacks its time or version")
    parent, merged, actor = map(metadata.get, ("parent_commit_id", "merged_parent_commit_id", "actor_id"))
    return GraphCommit(row["object_id"], row["table_branch"], version, parent, merged, actor, created_at)


@dataclass
class ManifestState:
    """All rows of one branch's manifest, folded. Lineage rows are decoded only when lineage is asked for."""

    tables: dict[str, str] = field(default_factory=dict)
    versions: dict[str, dict[int, TableEntry]] = field(default_factory=dict)
    tombstones: dict[str, int] = field(default_factory=dict)
    tombstone_ids: set[str] = field(default_factory=set)
    lineage: dict[str, Row] = field(default_factory=dict)
    heads: dict[str, Row] = field(default_factory=dict)
    _commits: dict[str, GraphCommit] = field(default_factory=dict)
    _undecoded: set[str] = field(default_factory=set)
    _head: GraphCommit | None = None

    def fold(self, rows: Iterable[Row]) -> None:
        """Take in new and replaced rows. Registrations first, whatever their order [PUB-12]."""
        rows = list(rows)
        for row in rows:
            if row["object_type"] == "table":
                if row["location"] is None:
                    raise _corrupt(row, "a table row has no location")
                self.tables[row["table_key"]] = row["location"]
        for row in rows:
            self._fold_one(row)

    def _fold_one(self, row: Row) -> None:
        kind, key = row["object_type"], row["table_key"]
        if kind == "table_version":
            if row["table_version"] is None or row["row_count"] is None or row["metadata"] is None:
                raise _corrupt(row, "a table_version row lacks its version, row count or metadata")
            if key not in self.tables:
                raise _corrupt(row, "a table_version row names a table that is not registered")
            entry = TableEntry(key, self.tables[key], row["table_version"], row["table_branch"], row["row_count"])
            self.versions.setdefault(key, {})[entry.version] = entry
        elif kind == "table_tombstone":
            if row["table_version"] is None:
                raise _corrupt(row, "a table_tombstone row lacks its version")
            self.tombstones[key] = max(self.tombstones.get(key, 0), row["table_version"])
            self.tombstone_ids.add(row["object_id"])
        elif kind == "graph_commit":
            self.lineage[row["object_id"]] = row
            self._undecoded.add(row["object_id"])
        elif kind == "graph_head":
            self.heads[row["object_id"]] = row

    def latest(self, table_key: str) -> TableEntry | None:
        """The visible entry of a table: its highest version, unless a tombstone covers it [MAN-09]."""
        versions = self.versions.get(table_key)
        if not versions:
            return None
        entry = versions[max(versions)]
        return None if self.tombstones.get(table_key, -1) >= entry.version else entry

    def visible_version(self, table_key: str) -> int:
        """What an expected version is compared with: 0 if unknown, the tombstone's version if dropped [PUB-04]."""
        entry = self.latest(table_key)
        return entry.version if entry is not None else self.tombstones.get(table_key, 0)

    def entries(self) -> dict[str, TableEntry]:
        """The snapshot: every visible table, sorted by key."""
        found = ((key, self.latest(key)) for key in sorted(self.versions))
        return {key: entry for key, entry in found if entry is not None}

    def commit_map(self) -> dict[str, GraphCommit]:
        """The lineage of this branch by commit id. Only rows that are new since the last call are decoded."""
        for row in self.heads.values():
            if not isinstance(_lineage_metadata(row).get("head_commit_id"), str):
                raise _corrupt(row, "a graph_head row names no commit")
        while self._undecoded:
            commit = decode_commit(self.lineage[next(iter(self._undecoded))])
            self._commits[commit.graph_commit_id] = commit
            self._undecoded.discard(commit.graph_commit_id)
            if self._head is None or commit.order > self._head.order:
                self._head = commit
        return self._commits

    def commits(self) -> list[GraphCommit]:
        """The lineage of this branch, oldest first [LIN-10]."""
        return sorted(self.commit_map().values(), key=lambda commit: commit.order)

    def head(self) -> GraphCommit | None:
        """The commit that the next one has as its parent: the greatest, whatever the head row says [LIN-05]."""
        self.commit_map()
        return self._head


def _corrupt(row: Row, what: str) -> Internal:
    return Internal(
        f"__manifest row '{row['object_id']}': {what}",
        code="manifest_corrupt",
        details={"object_id": row["object_id"], "object_type": row["object_type"], "table_key": row["table_key"]},
    )
