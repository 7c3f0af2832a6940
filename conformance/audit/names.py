"""The names of the format, read from the specification: hashes, keys, object ids, places of branches."""

from __future__ import annotations

import re
from typing import Final

MAIN: Final = "main"
MANIFEST_DIR: Final = "__manifest"
RECOVERY_DIR: Final = "__recovery"
AUDIT_DIR: Final = "_graph_commit_recoveries.lance"
# Who publishes what a crashed writer had staged [REC-14].
RECOVERY_ACTOR: Final = "omnigraph:recovery"
LOCK_BRANCH: Final = "__schema_apply_lock__"
SCHEMA_FILES: Final = ("_schema.pg", "_schema.ir.json", "__schema_state.json")
STAGING_FILES: Final = tuple(f"{name}.staging" for name in SCHEMA_FILES)
LEGACY_DIRS: Final = frozenset(
    {"_graph_commits.lance", "_graph_commit_actors.lance", "_graph_runs.lance", "_graph_run_actors.lance"}
)
TABLE_DIRS: Final = {"node": "nodes", "edge": "edges"}
VERSION_MAX: Final = 2**64 - 1

_TABLE_KEY: Final = re.compile(r"(node|edge):([A-Z][A-Za-z0-9_]*)")
_ULID: Final = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")


def fnv1a_64(text: str) -> str:
    """The directory name of a type: FNV-1a 64 of its bare name, as 16 hex digits [LAY-02]."""
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = ((value ^ byte) * 0x100000001B3) % 2**64
    return f"{value:016x}"


def fnv1a_32(text: str) -> int:
    """The id of a type or property in the IR [SCH-14]."""
    value = 2166136261
    for byte in text.encode():
        value = ((value ^ byte) * 16777619) % 2**32
    return value or 1


def table_path(table_key: str) -> str | None:
    """Where the table of a key has to be, relative to the root; None for what is no table key [LAY-03]."""
    match = _TABLE_KEY.fullmatch(table_key)
    return f"{TABLE_DIRS[match[1]]}/{fnv1a_64(match[2])}" if match else None


def version_object_id(table_key: str, version: int) -> str:
    return f"{table_key}${version:020d}"


def tombstone_object_id(table_key: str, version: int) -> str:
    return f"{table_key}$tombstone${version:020d}"


def is_ulid(text: object) -> bool:
    return isinstance(text, str) and _ULID.fullmatch(text) is not None


def storage_path(path: str, branch: str | None) -> str:
    """The directory that holds a dataset's data on a branch; None is main [LAY-05]."""
    return path if branch is None else f"{path}/tree/{branch}"


def version_file(path: str, branch: str | None, version: int) -> str:
    """The file of one version of a dataset: the newest sorts first."""
    return f"{storage_path(path, branch)}/_versions/{VERSION_MAX - version:020d}.manifest"


def label(branch: str | None) -> str:
    """A branch as people name it."""
    return MAIN if branch is None else branch
