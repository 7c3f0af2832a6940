"""The rows of `__manifest` on one branch: decoded by the specification, and checked while they are decoded [MAN].

A manifest is scanned once. Rows of unknown object types are skipped on every path [MAN-04]; a row of a known type that
cannot be understood becomes a finding, and the audit goes on without it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import orjson
import pyarrow as pa
from lance import LanceDataset

from conformance.audit.findings import Findings
from conformance.audit.names import (
    label,
    storage_path,
    table_path,
    tombstone_object_id,
    version_file,
    version_object_id,
)

CREATED_AT: Final = "_row_created_at_version"
PRIMARY_KEY: Final = b"lance-schema:unenforced-primary-key"
STAMP_KEY: Final = b"omnigraph:internal_schema_version"
STAMP: Final = "4"
CONFIG: Final = ("table_version_management", "true")
HEAD_PREFIX: Final = "graph_head:"

MANIFEST_SCHEMA: Final = pa.schema(
    [
        pa.field("object_id", pa.string(), nullable=False),
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
_SCANNED: Final = [name for name in MANIFEST_SCHEMA.names if name != "base_objects"]


_VERSION_METADATA: Final = (
    ("manifest_path", (str,)),
    ("manifest_size", (int, type(None))),
    ("e_tag", (str, type(None))),
    ("naming_scheme", (str, type(None))),
)


class Row(NamedTuple):
    """One row as it is stored, and the manifest version that created it."""

    object_id: str
    object_type: str
    location: str | None
    metadata: str | None
    table_key: str
    table_version: int | None
    table_branch: str | None
    row_count: int | None
    created_at_version: int


class Entry(NamedTuple):
    """A pinned version of a table; `branch` owns the data, None is main."""

    table_key: str
    path: str
    version: int
    branch: str | None
    row_count: int


class Commit(NamedTuple):
    """A graph commit, and the manifest version that really created its row."""

    commit_id: str
    branch: str | None
    version: int
    parent: str | None
    merged_parent: str | None
    actor: str | None
    created_at: int
    landed: int

    @property
    def order(self) -> tuple[int, int, str]:
        """The head of a branch is the greatest by this [LIN-05]."""
        return (self.version, self.created_at, self.commit_id)


@dataclass
class Manifest:
    """What the manifest of one branch says."""

    branch: str | None
    version: int
    landed_is_known: bool
    registered: set[str] = field(default_factory=set)
    locations: dict[str, str] = field(default_factory=dict)
    versions: dict[str, dict[int, Row]] = field(default_factory=dict)
    tombstones: dict[str, int] = field(default_factory=dict)
    commits: dict[str, Commit] = field(default_factory=dict)
    heads: dict[str, dict[str, Any]] = field(default_factory=dict)
    published_at: dict[int, str] = field(default_factory=dict)

    @property
    def where(self) -> str:
        return label(self.branch)

    def entries(self) -> dict[str, Entry]:
        """The snapshot: of each table the highest version, unless a tombstone hides it [MAN-09, MAN-10]."""
        found: dict[str, Entry] = {}
        for key in sorted(self.versions):
            version, row = max(self.versions[key].items())
            if self.tombstones.get(key, -1) < version and key in self.locations:
                found[key] = Entry(key, self.locations[key], version, row.table_branch, row.row_count or 0)
        return found

    def head(self) -> Commit | None:
        return max(self.commits.values(), key=lambda commit: commit.order, default=None)


def check_manifest_dataset(found: Findings, handle: LanceDataset, branch: str | None) -> None:
    """The dataset of a branch's manifest: its columns, its key, its config and its stamp [MAN-01, STM]."""
    where = label(branch)
    schema: pa.Schema = handle.schema
    if not schema.equals(MANIFEST_SCHEMA, check_metadata=False):
        found.add("manifest-schema", where, "the columns of __manifest are not those of the format", actual=str(schema))
    if "object_id" in schema.names:
        metadata = schema.field("object_id").metadata or {}
        if metadata.get(PRIMARY_KEY) != b"true":
            found.add("manifest-key", where, "object_id is not annotated as the primary key: keys can be added twice")
    if handle.config().get(CONFIG[0]) != CONFIG[1]:
        found.add("manifest-config", where, f"the config key {CONFIG[0]} is not '{CONFIG[1]}'")
    stamp = (schema.metadata or {}).get(STAMP_KEY)
    if stamp != STAMP.encode():
        shown = None if stamp is None else stamp.decode(errors="replace")
        code = "stamp" if branch is None else "branch-stamp"
        found.add(code, where, f"the internal schema stamp is {shown!r}, not '{STAMP}'", actual=shown)
    if any("object_id" in index.field_names for index in handle.describe_indices()):
        found.add("manifest-key-indexed", where, "an index on object_id switches off the conflict check on keys")


def read_manifest(found: Findings, handle: LanceDataset, branch: str | None) -> Manifest:
    """Scan the manifest of a branch, once, and decode every row of it."""
    manifest = Manifest(branch, int(handle.version), bool(handle.has_stable_row_ids))
    present = [name for name in _SCANNED if name in handle.schema.names]
    if len(present) < len(_SCANNED):
        return manifest
    extra = ["base_objects"] if "base_objects" in handle.schema.names else []
    table = handle.to_table(columns=[*_SCANNED, *extra, CREATED_AT])
    if extra and table["base_objects"].null_count < table.num_rows:
        found.add("reserved-column", manifest.where, "base_objects is reserved and has a value in some row")
    columns = [table[name].to_pylist() for name in [*_SCANNED, CREATED_AT]]
    rows = [Row(*values) for values in zip(*columns, strict=True)]
    found.checked["manifest_rows"] += len(rows)
    _check_distinct(found, manifest, rows)
    # Tables first: a version row is checked against the location of its table.
    for row in sorted(rows, key=lambda row: row.object_type != "table"):
        _DECODERS.get(row.object_type, _skip)(found, manifest, row)
    for key in sorted(manifest.versions.keys() - manifest.registered):
        found.add("version-without-table", f"{manifest.where}/{key}", f"there is no table row for '{key}'")
    return manifest


def _check_distinct(found: Findings, manifest: Manifest, rows: list[Row]) -> None:
    for object_id, count in Counter(row.object_id for row in rows).items():
        if count > 1:
            where = f"{manifest.where}/{object_id}"
            found.add("object-id-duplicate", where, f"{count} rows have the object id '{object_id}'", count=count)


def _skip(found: Findings, manifest: Manifest, row: Row) -> None:
    found.checked["unknown_rows"] += 1


def _decode_table(found: Findings, manifest: Manifest, row: Row) -> None:
    where = f"{manifest.where}/{row.object_id}"
    expected = table_path(row.table_key)
    manifest.registered.add(row.table_key)
    if row.object_id != row.table_key:
        found.add("object-id", where, f"a table row of '{row.table_key}' has the object id '{row.object_id}'")
    if expected is None:
        found.add("table-key", where, f"'{row.table_key}' is not a table key")
        return
    manifest.published_at.setdefault(row.created_at_version, row.object_id)
    if row.location is None:
        found.add("row-incomplete", where, "the table row has no location")
        return
    if row.location.startswith("/") or "://" in row.location:
        found.add("location-absolute", where, f"the location '{row.location}' is not relative to the graph")
    if row.location != expected:
        found.add("location", where, f"the location is '{row.location}', not '{expected}'", expected=expected)
        return
    manifest.locations[row.table_key] = row.location


def _decode_version(found: Findings, manifest: Manifest, row: Row) -> None:
    where = f"{manifest.where}/{row.object_id}"
    if row.table_version is None or row.row_count is None or row.metadata is None:
        missing = [name for name in ("table_version", "row_count", "metadata") if getattr(row, name) is None]
        found.add("row-incomplete", where, f"the version row has no {', '.join(missing)}", missing=missing)
    if row.table_version is None:
        return
    if row.object_id != version_object_id(row.table_key, row.table_version):
        found.add("object-id", where, f"the row is version {row.table_version} of '{row.table_key}'")
    manifest.published_at.setdefault(row.created_at_version, row.object_id)
    manifest.versions.setdefault(row.table_key, {})[row.table_version] = row
    if row.metadata is not None:
        _check_version_metadata(found, manifest, row, where)


def _check_version_metadata(found: Findings, manifest: Manifest, row: Row, where: str) -> None:
    body = _json_object(row.metadata)
    if body is None or any(type(body.get(name, ...)) not in kinds for name, kinds in _VERSION_METADATA):
        found.add("version-metadata", where, "the metadata is not that of a table version", metadata=row.metadata)
        return
    location = manifest.locations.get(row.table_key)
    assert row.table_version is not None
    if location is None or not body["manifest_path"].endswith(".manifest"):
        return
    # A graph that was copied keeps the prefix of the place where it was written.
    if not f"/{body['manifest_path']}".endswith(f"/{version_file(location, row.table_branch, row.table_version)}"):
        message = f"the metadata names another file than version {row.table_version} of "
        message += storage_path(location, row.table_branch)
        found.add("manifest-path", where, message, manifest_path=body["manifest_path"])


def _decode_tombstone(found: Findings, manifest: Manifest, row: Row) -> None:
    where = f"{manifest.where}/{row.object_id}"
    if row.table_version is None:
        found.add("row-incomplete", where, "the tombstone has no version")
        return
    if row.object_id != tombstone_object_id(row.table_key, row.table_version):
        found.add("object-id", where, f"the row is a tombstone at {row.table_version} of '{row.table_key}'")
    manifest.published_at.setdefault(row.created_at_version, row.object_id)
    manifest.tombstones[row.table_key] = max(manifest.tombstones.get(row.table_key, -1), row.table_version)


def _decode_commit(found: Findings, manifest: Manifest, row: Row) -> None:
    where = f"{manifest.where}/{row.object_id}"
    if row.table_key != "":
        found.add("object-id", where, f"a lineage row has the table key '{row.table_key}'")
    body = _json_object(row.metadata)
    optional = ("parent_commit_id", "merged_parent_commit_id", "actor_id")
    if (
        body is None
        or type(body.get("created_at")) is not int
        or any(name in body and not isinstance(body[name], str) for name in optional)
    ):
        found.add("lineage-metadata", where, "the metadata of the commit cannot be understood", metadata=row.metadata)
        return
    if row.table_version is None:
        found.add("row-incomplete", where, "the commit does not say which manifest version it is")
        return
    parent, merged, actor = (body.get(name) for name in optional)
    manifest.commits[row.object_id] = Commit(
        row.object_id,
        row.table_branch,
        row.table_version,
        parent,
        merged,
        actor,
        body["created_at"],
        row.created_at_version,
    )


def _decode_head(found: Findings, manifest: Manifest, row: Row) -> None:
    where = f"{manifest.where}/{row.object_id}"
    body = _json_object(row.metadata)
    if not row.object_id.startswith(HEAD_PREFIX):
        found.add("object-id", where, "the object id of a head row does not begin with 'graph_head:'")
        return
    if body is None or not isinstance(body.get("head_commit_id"), str):
        found.add("lineage-metadata", where, "the metadata of the head cannot be understood", metadata=row.metadata)
        return
    manifest.heads[row.object_id.removeprefix(HEAD_PREFIX)] = body


def _json_object(text: str | None) -> dict[str, Any] | None:
    try:
        body = orjson.loads(text or "")
    except orjson.JSONDecodeError:
        return None
    return body if isinstance(body, dict) else None


_DECODERS: Final = {
    "table": _decode_table,
    "table_version": _decode_version,
    "table_tombstone": _decode_tombstone,
    "graph_commit": _decode_commit,
    "graph_head": _decode_head,
}
