"""Sound graphs, and ways to damage them: each with Lance and Arrow alone, one defect at a time.

A defect of the rows of a table is forged at its HEAD, and then the pin is moved there in place (`amend`), so that the
audit sees that defect and no other.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import lance
import pyarrow as pa

from conformance.audit import AuditReport, audit
from conformance.audit.manifest import MANIFEST_SCHEMA
from conformance.audit.names import MANIFEST_DIR, table_path, version_file, version_object_id
from reference.graph import Graph

SCHEMA = """
node Person {
  handle: String @key
  age: I32?
  email: String? @unique
  mood: enum(calm, busy)?
  moods: [enum(calm, busy)]?
  score: F64?
  face: Vector(2)?
  @range(age, 0..150)
  @check(handle, "^[a-z]+$")
}
node City {
  country: String
  zip: I32
  @key(country, zip)
}
edge Knows: Person -> Person @card(0..2)
edge Visits: Person -> City @card(2..3)
"""
RECORDS = "\n".join(
    json.dumps(record)
    for record in [
        {"type": "Person", "data": {"handle": "ann", "age": 30, "email": "a@x", "mood": "calm", "score": 1.5}},
        {"type": "Person", "data": {"handle": "bea", "age": 31, "email": "b@x", "face": [1, 2], "moods": ["busy"]}},
        {"type": "Person", "data": {"handle": "cat"}},
        {"type": "City", "data": {"country": "nl", "zip": 1000}},
        {"type": "City", "data": {"country": "nl", "zip": 2000}},
        {"edge": "Knows", "from": "ann", "to": "bea", "data": {"id": "k1"}},
        {"edge": "Visits", "from": "ann", "to": '["nl",1000]', "data": {"id": "v1"}},
        {"edge": "Visits", "from": "ann", "to": '["nl",2000]', "data": {"id": "v2"}},
    ]
)
Action = Callable[[lance.LanceDataset], object]


@dataclass(frozen=True)
class Forgery:
    """A graph in a directory, to be damaged."""

    path: Path

    def audit(self, *, data: bool = True) -> AuditReport:
        return audit(str(self.path), data=data)

    def graph(self) -> Graph:
        return Graph.open(str(self.path))

    # -- the manifest ------------------------------------------------------------------------------------------------

    def manifest(self, branch: str | None = None) -> lance.LanceDataset:
        place = self.path / MANIFEST_DIR
        return lance.dataset(str(place if branch is None else place / "tree" / branch))

    def set(self, row: str, /, **values: Any) -> None:
        """Change columns of a row in place; its creation stays where it was."""
        changes = {name: _literal(name, value) for name, value in values.items()}
        assert self.manifest().update(changes, where=f"object_id = '{row}'")["num_rows_updated"] == 1

    def add(self, **row: Any) -> None:
        """Append a row, as an engine would that does not look whether it is there."""
        rows = pa.Table.from_pylist([{"table_key": "", **row}], schema=self.manifest().schema)
        lance.write_dataset(rows, self.manifest(), mode="append")

    def object_ids(self, object_type: str) -> list[str]:
        rows = self.manifest().to_table(columns=["object_id"], filter=f"object_type = '{object_type}'")
        return sorted(rows["object_id"].to_pylist())

    def commit_ids(self) -> list[str]:
        """The commits of main, oldest first."""
        return [commit.graph_commit_id for commit in self.graph().commits("main")]

    def commit_metadata(self, commit_id: str) -> dict[str, Any]:
        (row,) = self.manifest().to_table(filter=f"object_id = '{commit_id}'").to_pylist()
        metadata: dict[str, Any] = json.loads(row["metadata"])
        return metadata

    def set_commit(self, commit_id: str, **changes: Any) -> None:
        body = {**self.commit_metadata(commit_id), **changes}
        self.set(commit_id, metadata=json.dumps({name: value for name, value in body.items() if value is not None}))

    # -- tables ------------------------------------------------------------------------------------------------------

    def table(self, table_key: str, branch: str | None = None) -> lance.LanceDataset:
        place = self.table_dir(table_key)
        return lance.dataset(str(place if branch is None else place / "tree" / branch))

    def table_dir(self, table_key: str) -> Path:
        path = table_path(table_key)
        assert path is not None
        return self.path / path

    def pin(self, table_key: str) -> int:
        """The version that main pins."""
        rows = self.manifest().to_table(filter=f"object_type = 'table_version' AND table_key = '{table_key}'")
        return int(max(rows["table_version"].to_pylist()))

    def amend(self, table_key: str, action: Action) -> None:
        """Change a table, and make main's pin follow, as if it had always been so."""
        pinned = version_object_id(table_key, self.pin(table_key))
        action(self.table(table_key))
        head, path = self.table(table_key), table_path(table_key)
        assert path is not None
        metadata = {"manifest_path": version_file(path, None, head.version), "manifest_size": 1}
        self.set(
            pinned,
            object_id=version_object_id(table_key, head.version),
            table_version=head.version,
            row_count=head.count_rows(),
            metadata=json.dumps({**metadata, "e_tag": None, "naming_scheme": "V2"}),
        )

    # -- other files -------------------------------------------------------------------------------------------------

    def sidecar(self, **changes: Any) -> Path:
        """A sidecar of a mutation on the people of main that has moved nothing."""
        operation_id = "01M7GZSZTDJD97MA655G1X2CDR"
        pin = self.pin("node:Person")
        body = {
            "schema_version": 2,
            "operation_id": operation_id,
            "started_at": "1794792816461337",
            "branch": None,
            "actor_id": None,
            "writer_kind": "Mutation",
            "tables": [
                {
                    "table_key": "node:Person",
                    "table_path": str(self.table_dir("node:Person")),
                    "expected_version": pin,
                    "post_commit_pin": pin + 1,
                }
            ],
        }
        file = self.path / "__recovery" / f"{operation_id}.json"
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps({**body, **changes}, indent=2))
        return file

    def edit_json(self, name: str, edit: Callable[[Any], object]) -> None:
        file = self.path / name
        body = json.loads(file.read_text())
        edit(body)
        file.write_text(json.dumps(body, indent=2))


def write_graph(path: Path) -> Forgery:
    """A small sound graph with one row of each kind."""
    Graph.init(str(path), SCHEMA).load(RECORDS, mode="merge", actor="ann")
    return Forgery(path)


def copy_of(template: Forgery, path: Path) -> Forgery:
    """The same graph in another directory. Only main survives that: Lance keeps absolute addresses in branches."""
    shutil.copytree(template.path, path)
    return Forgery(path)


def rebuild_manifest(
    forgery: Forgery,
    *,
    schema: pa.Schema = MANIFEST_SCHEMA,
    is_keyed: bool = True,
    stable_row_ids: bool = True,
    stamp: str | None = "4",
    config: Mapping[str, str] | None = None,
    file_version: Literal["2.0", "2.2"] = "2.2",
) -> None:
    """Write `__manifest` of a graph that was only initialized anew, with other properties."""
    rows = forgery.manifest().to_table(columns=[name for name in schema.names if name in MANIFEST_SCHEMA.names])
    shutil.rmtree(forgery.path / MANIFEST_DIR)
    fields = [
        field.with_metadata({"lance-schema:unenforced-primary-key": "true"})
        if field.name == "object_id" and is_keyed
        else field
        for field in schema
    ]
    metadata = {} if stamp is None else {"omnigraph:internal_schema_version": stamp}
    arrays = [rows[field.name].cast(field.type) for field in schema]
    handle = lance.write_dataset(
        pa.table(arrays, schema=pa.schema(fields, metadata=metadata)),
        str(forgery.path / MANIFEST_DIR),
        enable_stable_row_ids=stable_row_ids,
        data_storage_version=file_version,
    )
    handle.update_config(dict({"table_version_management": "true"} if config is None else config))


def _literal(name: str, value: Any) -> str:
    if value is None:
        return f"CAST(NULL AS {'BIGINT UNSIGNED' if name in ('table_version', 'row_count') else 'STRING'})"
    if isinstance(value, int):
        return str(value)
    return "'" + str(value).replace("'", "''") + "'"
