"""Sidecars: what a writer left to say what it was about to do [REC 11.1].

A sidecar in a graph at rest means that an operation was cut: a warning, since the next read-write open deals with it.
One that no engine may act on (unreadable, of a later generation, of another graph) is an error.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from conformance.audit.findings import Findings
from conformance.audit.manifest import Manifest
from conformance.audit.names import RECOVERY_DIR, is_ulid, label, storage_path, table_path
from conformance.audit.places import Objects, Root

SCHEMA_VERSION_MAX: Final = 2
WRITER_KINDS: Final = ("Mutation", "Load", "SchemaApply", "BranchMerge", "EnsureIndices", "Optimize")
_SUFFIX: Final = ".json"


@dataclass(frozen=True)
class Pin:
    """A table that a sidecar covers."""

    table_key: str
    table_path: str
    expected_version: int
    post_commit_pin: int
    confirmed_version: int | None
    table_branch: str | None


@dataclass(frozen=True)
class Sidecar:
    """As much of a sidecar as an audit needs."""

    operation_id: str
    branch: str | None
    writer_kind: str
    pins: tuple[Pin, ...]
    registrations: tuple[tuple[str, str], ...] = ()

    @property
    def where(self) -> str:
        return f"{RECOVERY_DIR}/{self.operation_id}{_SUFFIX}"


@dataclass(frozen=True)
class Sidecars:
    """All sidecars that could be understood."""

    items: tuple[Sidecar, ...] = ()
    _covered: Mapping[tuple[str, str | None], str] = field(default_factory=dict)

    @classmethod
    def of(cls, items: Iterable[Sidecar]) -> Sidecars:
        items = tuple(items)
        return cls(items, {(pin.table_key, pin.table_branch): each.where for each in items for pin in each.pins})

    def covering(self, table_key: str, table_branch: str | None) -> str | None:
        """The sidecar that accounts for a table whose HEAD is ahead of its pin."""
        return self._covered.get((table_key, table_branch))

    @property
    def schema_apply(self) -> bool:
        return any(sidecar.writer_kind == "SchemaApply" for sidecar in self.items)

    def registered_paths(self) -> set[str]:
        return {path for sidecar in self.items for _, path in sidecar.registrations}


class _Malformed(Exception):
    """Which field of a sidecar is not what it should be."""


def read_sidecars(found: Findings, objects: Objects) -> Sidecars:
    """Every sidecar of the graph; what is in their directory and is none is not ours to judge [LAY-15]."""
    listing = objects.children(RECOVERY_DIR)
    sidecars = []
    for name in listing.files:
        where = f"{RECOVERY_DIR}/{name}"
        if not name.endswith(_SUFFIX):
            found.add("unknown-file", where, "the file is no sidecar and is ignored")
            continue
        content = objects.read(where)
        if content is not None:  # Its writer may have ended meanwhile.
            sidecar = _decode(found, where, name.removesuffix(_SUFFIX), content)
            sidecars += [sidecar] if sidecar is not None else []
    for name in listing.dirs:
        if not objects.holds(f"{RECOVERY_DIR}/{name}"):
            continue
        found.add("unknown-file", f"{RECOVERY_DIR}/{name}", "the directory is no sidecar and is ignored")
    found.checked["sidecars"] += len(sidecars)
    return Sidecars.of(sidecars)


def _decode(found: Findings, where: str, stem: str, content: bytes) -> Sidecar | None:
    try:
        body = json.loads(content)
        version = _take(body, "schema_version", int)
        if version > SCHEMA_VERSION_MAX:
            message = f"schema_version {version} is newer than {SCHEMA_VERSION_MAX}: nobody may act on this sidecar"
            found.add("sidecar-future", where, message, schema_version=version)
            return None
        if _take(body, "operation_id", str) != stem or not is_ulid(stem):
            raise _Malformed("operation_id is not the ULID of the file's name")
        kind = _take(body, "writer_kind", str)
        if kind not in WRITER_KINDS:
            raise _Malformed(f"writer_kind '{kind}' is unknown")
        if not _take(body, "started_at", str).isdigit():
            raise _Malformed("started_at is not a number of microseconds, as text")
        for name in ("branch", "actor_id"):
            if name not in body:
                raise _Malformed(f"{name} is missing")
        _take(body, "actor_id", str, optional=True)
        return Sidecar(
            stem,
            _take(body, "branch", str, optional=True),
            kind,
            tuple(_pin(each) for each in _take(body, "tables", list)),
            tuple(
                (_take(each, "table_key", str), _take(each, "table_path", str))
                for each in _take(body, "additional_registrations", list, optional=True) or []
            ),
        )
    except (ValueError, RecursionError):
        found.add("sidecar-unreadable", where, "the sidecar is not JSON: every read-write open will refuse")
    except _Malformed as error:
        found.add("sidecar-unreadable", where, f"the sidecar cannot be understood: {error}")
    return None


def _pin(body: Any) -> Pin:
    return Pin(
        _take(body, "table_key", str),
        _take(body, "table_path", str),
        _take(body, "expected_version", int),
        _take(body, "post_commit_pin", int),
        _take(body, "confirmed_version", int, optional=True),
        _take(body, "table_branch", str, optional=True),
    )


def _take(body: Any, name: str, kind: type, *, optional: bool = False) -> Any:
    if not isinstance(body, dict):
        raise _Malformed("an object was expected")
    value = body.get(name)
    if value is None and optional:
        return None
    if not isinstance(value, kind) or isinstance(value, bool) or (isinstance(value, int) and value < 0):
        raise _Malformed(f"{name} is missing or not a {kind.__name__}")
    return value


def check_sidecars(
    found: Findings, root: Root, sidecars: Sidecars, manifests: Mapping[str | None, Manifest], branches: set[str | None]
) -> None:
    """Hold each sidecar against the graph that it lies in."""
    for sidecar in sidecars.items:
        message = f"a {sidecar.writer_kind} on '{label(sidecar.branch)}' was cut: the next read-write open settles it"
        tables = [pin.table_key for pin in sidecar.pins]
        found.add("sidecar-pending", sidecar.where, message, writer_kind=sidecar.writer_kind, tables=tables)
        if sidecar.branch not in branches:
            message = f"branch '{label(sidecar.branch)}' does not exist any more: recovery will discard the sidecar"
            found.add("sidecar-branch-gone", sidecar.where, message, branch=sidecar.branch)
        for pin in sidecar.pins:
            _check_pin(found, root, sidecar, pin, manifests.get(sidecar.branch))


def _check_pin(found: Findings, root: Root, sidecar: Sidecar, pin: Pin, manifest: Manifest | None) -> None:
    path = table_path(pin.table_key)
    if path is None:
        found.add("sidecar-implausible", sidecar.where, f"'{pin.table_key}' is not a table key")
        return
    own = {root.join(path), root.join(storage_path(path, pin.table_branch))}
    if pin.table_path.removeprefix("file://").rstrip("/") not in own:
        message = f"the sidecar names '{pin.table_key}' at {pin.table_path}, which is not a table of this graph"
        found.add("sidecar-foreign", sidecar.where, message, table_path=pin.table_path)
    problems = []
    if pin.post_commit_pin != pin.expected_version + 1:
        problems.append(f"post_commit_pin {pin.post_commit_pin} does not follow expected_version")
    if pin.confirmed_version is not None and pin.confirmed_version <= pin.expected_version:
        problems.append(f"confirmed_version {pin.confirmed_version} is not beyond expected_version")
    entry = None if manifest is None else manifest.entries().get(pin.table_key)
    if entry is not None and pin.expected_version > entry.version:
        problems.append(f"expected_version is beyond the pin {entry.version} of the manifest")
    for problem in problems:
        message = f"'{pin.table_key}', expected_version {pin.expected_version}: {problem}"
        found.add("sidecar-implausible", sidecar.where, message, table_key=pin.table_key)
