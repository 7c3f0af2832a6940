"""Sound graphs, and ways to damage them: in a directory, one defect at a time, with the forge that every suite uses.

A defect of the rows of a table is forged at its HEAD, and then the pin is moved there in place (`amend`), so that the
audit sees that defect and no other.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance

from conformance.audit import AuditReport
from conformance.audit.names import table_path
from fixtures.forge import Forge
from fixtures.forge import rebuild_manifest as rebuild
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

    @property
    def forge(self) -> Forge:
        return Forge(str(self.path))

    def audit(self, *, data: bool = True) -> AuditReport:
        return self.forge.audit(data=data)

    def graph(self) -> Graph:
        return Graph.open(str(self.path))

    # -- the manifest ------------------------------------------------------------------------------------------------

    def manifest(self, branch: str | None = None) -> lance.LanceDataset:
        return self.forge.manifest(branch)

    def set(self, row: str, /, **values: Any) -> None:
        self.forge.set_row(row, **values)

    def add(self, **row: Any) -> None:
        self.forge.add_row(**row)

    def commit_ids(self) -> list[str]:
        """The commits of main, oldest first."""
        return [commit.graph_commit_id for commit in self.graph().commits("main")]

    def set_commit(self, commit_id: str, **changes: Any) -> None:
        self.forge.set_row_metadata(commit_id, **changes)

    # -- tables ------------------------------------------------------------------------------------------------------

    def table(self, table_key: str, fork: str | None = None) -> lance.LanceDataset:
        return self.forge.storage(table_key, fork)

    def table_dir(self, table_key: str) -> Path:
        path = table_path(table_key)
        assert path is not None
        return self.path / path

    def pin(self, table_key: str) -> int:
        """The version that main pins."""
        return self.forge.pin(table_key)

    def amend(self, table_key: str, action: Action) -> None:
        self.forge.amend(table_key, action)

    # -- other files -------------------------------------------------------------------------------------------------

    def sidecar(self, **changes: Any) -> Path:
        """A sidecar of a mutation on the people of main that has moved nothing; `changes` win over its fields."""
        forge, operation_id = self.forge, "01M7GZSZTDJD97MA655G1X2CDR"
        body = forge.sidecar(tables=[forge.pin_of("node:Person")], operation_id=operation_id)
        forge.write(name := f"__recovery/{operation_id}.json", json.dumps({**body, **changes}, indent=2).encode())
        return self.path / name

    def edit_json(self, name: str, edit: Callable[[Any], object]) -> None:
        self.forge.edit_json(name, edit)


def write_graph(path: Path) -> Forgery:
    """A small sound graph with one row of each kind."""
    Graph.init(str(path), SCHEMA).load(RECORDS, mode="merge", actor="ann")
    return Forgery(path)


def copy_of(template: Forgery, path: Path) -> Forgery:
    """The same graph in another directory. Only main survives that: Lance keeps absolute addresses in branches."""
    shutil.copytree(template.path, path)
    return Forgery(path)


def rebuild_manifest(forgery: Forgery, **properties: Any) -> None:
    """Write `__manifest` of a graph that was only initialized anew, with other properties."""
    rebuild(forgery.forge, **properties)
