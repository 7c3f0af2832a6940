"""Where things are: table keys, type hashes, paths and the names of the files at the root of a graph.

Everything here is pure text. All paths are relative to the graph's root, with `/` between the parts [LAY-01…LAY-13].
"""

from __future__ import annotations

from typing import Literal, NamedTuple
from urllib.parse import quote

from reference.errors import BadRequest

MANIFEST_DIR = "__manifest"
RECOVERY_DIR = "__recovery"
RECOVERY_AUDIT_DIR = "_graph_commit_recoveries.lance"
SCHEMA_SOURCE_FILE = "_schema.pg"
SCHEMA_IR_FILE = "_schema.ir.json"
SCHEMA_STATE_FILE = "__schema_state.json"
SCHEMA_FILES = (SCHEMA_SOURCE_FILE, SCHEMA_IR_FILE, SCHEMA_STATE_FILE)
STAGING_SUFFIX = ".staging"
MAIN_BRANCH = "main"
SCHEMA_LOCK_BRANCH = "__schema_apply_lock__"

TableKind = Literal["node", "edge"]


def fnv1a_64(text: str) -> int:
    """FNV-1a, 64 bits, over the UTF-8 bytes: the hash in every table's path."""
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


def fnv1a_32(text: str) -> int:
    """FNV-1a, 32 bits, with 0 replaced by 1: the ids of types and properties in the schema IR."""
    value = 2166136261
    for byte in text.encode():
        value = ((value ^ byte) * 16777619) & 0xFFFFFFFF
    return value or 1


class TableKey(NamedTuple):
    """`node:Person` taken apart."""

    kind: TableKind
    type_name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.type_name}"

    @property
    def path(self) -> str:
        """The table's directory: a hash of the bare type name, so that any name is a safe path."""
        return f"{self.kind}s/{fnv1a_64(self.type_name):016x}"


def parse_table_key(text: str) -> TableKey:
    """Split a table key, or refuse it."""
    kind, colon, type_name = text.partition(":")
    if not colon or not type_name or kind not in ("node", "edge"):
        raise BadRequest(
            f"'{text}' is not a table key",
            code="invalid_table_key",
            details={"table_key": text},
            hint="write node:<TypeName> or edge:<EdgeName>",
        )
    return TableKey("node" if kind == "node" else "edge", type_name)


def table_path(table_key: str) -> str:
    """The graph-relative directory of a table."""
    return parse_table_key(table_key).path


def branch_location(path: str, branch: str | None) -> str:
    """Where a dataset keeps what belongs to a branch: main at its root, others below `tree/` [LAY-05]."""
    return path if branch is None else f"{path}/tree/{branch}"


def branch_ref_file(path: str, branch: str) -> str:
    """The file in which Lance records that a branch of the dataset exists: its name in percent encoding."""
    return f"{path}/_refs/branches/{quote(branch, safe='')}.json"


def branch_label(branch: str | None) -> str:
    """A branch as people and results name it: null is main."""
    return MAIN_BRANCH if branch is None else branch
