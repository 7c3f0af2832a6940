"""Recovery sidecars: what a writer is about to do, written down before it does it [REC 11.1].

A sidecar is a small JSON file `__recovery/{operation_id}.json`. Version 2 is written; versions 1 and 2 are read.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any, Literal, cast, get_args

from reference.errors import Internal

SIDECAR_SCHEMA_VERSION = 2
WriterKind = Literal["Mutation", "Load", "SchemaApply", "BranchMerge", "EnsureIndices", "Optimize"]
RECOVERY_ACTOR = "omnigraph:recovery"


@dataclass(frozen=True)
class Pin:
    """One table that the writer will move: from where, to where, and, for merges, where it really arrived."""

    table_key: str
    table_path: str
    expected_version: int
    post_commit_pin: int
    confirmed_version: int | None = None
    table_branch: str | None = None


@dataclass(frozen=True)
class Registration:
    """A table that the publish adds. Its path is relative to the graph."""

    table_key: str
    table_path: str
    table_branch: str | None = None


@dataclass(frozen=True)
class Tombstone:
    """A table that the publish drops."""

    table_key: str
    tombstone_version: int


@dataclass(frozen=True)
class Sidecar:
    """A writer's intent."""

    operation_id: str
    started_at: int
    branch: str | None
    actor_id: str | None
    writer_kind: WriterKind
    tables: tuple[Pin, ...]
    merge_source_commit_id: str | None = None
    additional_registrations: tuple[Registration, ...] = ()
    tombstones: tuple[Tombstone, ...] = ()
    schema_version: int = SIDECAR_SCHEMA_VERSION

    def confirmed(self, versions: dict[str, int]) -> Sidecar:
        """The same intent with the versions that the tables really reached."""
        pins = tuple(replace(pin, confirmed_version=versions.get(pin.table_key)) for pin in self.tables)
        return replace(self, tables=pins)

    def encode(self) -> str:
        """The file's text."""
        body: dict[str, Any] = {
            "schema_version": self.schema_version,
            "operation_id": self.operation_id,
            "started_at": str(self.started_at),
            "branch": self.branch,
            "actor_id": self.actor_id,
            "writer_kind": self.writer_kind,
            "tables": [_without_none(vars(pin)) for pin in self.tables],
        }
        if self.merge_source_commit_id is not None:
            body["merge_source_commit_id"] = self.merge_source_commit_id
        if self.additional_registrations:
            body["additional_registrations"] = [_without_none(vars(item)) for item in self.additional_registrations]
        if self.tombstones:
            body["tombstones"] = [_without_none(vars(item)) for item in self.tombstones]
        return json.dumps(body, indent=2, ensure_ascii=False)


def _without_none(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def decode_sidecar(operation_id: str, text: str) -> Sidecar:
    """A sidecar from its file. Whatever cannot be understood stops recovery; it is not guessed at [REC-10, REC-11]."""
    try:
        body = json.loads(text)
    except ValueError as error:
        raise _refused(operation_id, f"it is not JSON: {error}") from error
    reader = _Reader(operation_id, body)
    version = reader.take("schema_version", int)
    if version > SIDECAR_SCHEMA_VERSION:
        raise _refused(
            operation_id,
            f"its schema_version {version} is newer than {SIDECAR_SCHEMA_VERSION}",
            hint="upgrade this engine, or review the file and remove it by hand",
        )
    if reader.take("operation_id", str) != operation_id:
        raise _refused(operation_id, "its operation_id is not that of its file name")
    kind = reader.take("writer_kind", str)
    if kind not in get_args(WriterKind):
        raise _refused(operation_id, f"its writer_kind '{kind}' is unknown")
    started_at = reader.take("started_at", str)
    return Sidecar(
        operation_id=operation_id,
        started_at=int(started_at) if started_at.isascii() and started_at.isdigit() else 0,
        branch=reader.take("branch", str, optional=True),
        actor_id=reader.take("actor_id", str, optional=True),
        writer_kind=cast(WriterKind, kind),
        tables=tuple(
            Pin(
                table_key=item.take("table_key", str),
                table_path=item.take("table_path", str),
                expected_version=item.take("expected_version", int),
                post_commit_pin=item.take("post_commit_pin", int),
                confirmed_version=item.take("confirmed_version", int, optional=True),
                table_branch=item.take("table_branch", str, optional=True),
            )
            for item in reader.items("tables", required=True)
        ),
        merge_source_commit_id=reader.take("merge_source_commit_id", str, optional=True),
        additional_registrations=tuple(
            Registration(
                table_key=item.take("table_key", str),
                table_path=item.take("table_path", str),
                table_branch=item.take("table_branch", str, optional=True),
            )
            for item in reader.items("additional_registrations")
        ),
        tombstones=tuple(
            Tombstone(table_key=item.take("table_key", str), tombstone_version=item.take("tombstone_version", int))
            for item in reader.items("tombstones")
        ),
        schema_version=version,
    )


class _Reader:
    """Takes typed fields out of decoded JSON, or says which one is wrong."""

    def __init__(self, operation_id: str, body: Any) -> None:
        if not isinstance(body, dict):
            raise _refused(operation_id, "an object was expected")
        self._operation_id = operation_id
        self._body = body

    def take(self, name: str, kind: type, *, optional: bool = False) -> Any:
        value = self._body.get(name)
        if value is None and optional:
            return None
        if not isinstance(value, kind) or isinstance(value, bool) or (isinstance(value, int) and value < 0):
            raise _refused(self._operation_id, f"its field '{name}' is missing or not a {kind.__name__}")
        return value

    def items(self, name: str, *, required: bool = False) -> list[_Reader]:
        found = self._body.get(name, None if required else [])
        if not isinstance(found, list):
            raise _refused(self._operation_id, f"its field '{name}' is missing or not a list")
        return [_Reader(self._operation_id, item) for item in found]


def _refused(operation_id: str, why: str, *, hint: str | None = None) -> Internal:
    return Internal(
        f"recovery sidecar '{operation_id}' cannot be interpreted: {why}",
        code="sidecar_unreadable",
        details={"operation_id": operation_id},
        hint=hint or "nothing was changed; review __recovery before opening the graph read-write",
    )
