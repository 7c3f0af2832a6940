"""A mutation at work: statements that run one after the other on a working copy of a state [MUT, DEL].

    {"op": "insert", "type": T, "data": {…}}     {"op": "insert", "edge": E, "from": id, "to": id, "data": {…}}
    {"op": "update", "type": T, "where": {…}, "set": {…}}
    {"op": "delete", "type": T, "where": {…}}    also "edge"

Each statement sees what those before it did. `{"now": true}` is the time of the mutation, as a Date or a DateTime.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any, Final

from conformance.model.errors import bad_request
from conformance.model.predicates import compile_predicate
from conformance.model.records import FreshId, find_type, read_row
from conformance.model.schema import Property, Schema, Type
from conformance.model.validate import State
from conformance.model.values import Value, read_value

_FIELDS: Final = {
    ("insert", "type"): ({"op", "type"}, {"data"}),
    ("insert", "edge"): ({"op", "edge", "from", "to"}, {"data"}),
    ("update", "type"): ({"op", "type", "where", "set"}, set[str]()),
    ("delete", "type"): ({"op", "type", "where"}, set[str]()),
    ("delete", "edge"): ({"op", "edge", "where"}, set[str]()),
}
_MILLIS_PER_DAY: Final = 86_400_000


def check_shape(statements: Sequence[Any]) -> None:
    """What can be said without looking at the graph: fields, and that deletes stand alone [MUT-03]."""
    for statement in statements:
        if type(statement) is not dict:
            raise bad_request("invalid_statement", f"not a statement: {statement!r}")
        word = "edge" if "edge" in statement else "type"
        op = statement.get("op")
        needed, allowed = _FIELDS.get((op, word) if type(op) is str else ("", ""), (None, set[str]()))
        if needed is None or not needed <= statement.keys() <= needed | allowed:
            raise bad_request("invalid_statement", f"not a statement: {statement!r}")
        if type(statement.get("data", {})) is not dict or type(statement.get("set", {})) is not dict:
            raise bad_request("invalid_statement", f"values are given as an object: {statement!r}")
    if len({statement["op"] == "delete" for statement in statements}) > 1:
        raise bad_request("mixed_mutation", "a mutation deletes, or it inserts and updates")


class Mutation:
    """The working copy, and how many nodes and edges have been affected."""

    def __init__(self, schema: Schema, state: State, fresh_id: FreshId, now_millis: int) -> None:
        self.tables = {key: dict(rows) for key, rows in state.items()}
        self.affected = {"node": 0, "edge": 0}
        self._schema = schema
        self._fresh_id = fresh_id
        self._now_millis = now_millis

    def run(self, statement: dict[str, Any]) -> None:
        word = "edge" if "edge" in statement else "type"
        owner = find_type(self._schema, word, statement[word])
        {"insert": self._insert, "update": self._update, "delete": self._delete}[statement["op"]](owner, statement)

    def _insert(self, owner: Type, statement: dict[str, Any]) -> None:
        """A key that is there already is replaced; an id that was chosen by hand must be free [MUT-08, LOD-07]."""
        row = read_row(owner, statement.get("data", {}), statement, self._fresh_id, self._read)
        rows = self.tables[owner.table_key]
        if not owner.key and row["id"] in rows:
            raise bad_request("row_exists", f"{owner.table_key} has a row {row['id']!r} already")
        rows[str(row["id"])] = row
        self.affected[owner.kind] += 1

    def _update(self, owner: Type, statement: dict[str, Any]) -> None:
        given = statement["set"]
        if not given or any(owner.property(name) is None or name in owner.key for name in given):
            raise bad_request("invalid_statement", f"{owner.name} cannot be set to {given!r}")
        values = {prop.name: self._read(prop, given[prop.name]) for prop in owner.properties if prop.name in given}
        rows = self.tables[owner.table_key]
        for row_id in self._matching(owner, statement["where"]):
            rows[row_id] = MappingProxyType({**rows[row_id], **values})
            self.affected["node"] += 1

    def _delete(self, owner: Type, statement: dict[str, Any]) -> None:
        """The edges of a deleted node go with it [DEL-02]."""
        gone = self._matching(owner, statement["where"])
        for row_id in gone:
            del self.tables[owner.table_key][row_id]
        self.affected[owner.kind] += len(gone)
        ends = self._schema.edges_at(owner) if owner.kind == "node" else []
        for edge, side in ends:
            edges = self.tables[edge.table_key]
            for edge_id in [edge_id for edge_id, row in edges.items() if row[side] in gone]:
                del edges[edge_id]
                self.affected["edge"] += 1

    def _matching(self, owner: Type, where: Any) -> list[str]:
        truth = compile_predicate(owner, where, self._read)
        return [row_id for row_id, row in self.tables[owner.table_key].items() if truth(row) is True]

    def _read(self, prop: Property, given: Any) -> Value:
        if given == {"now": True} and not prop.is_list and prop.scalar in ("Date", "DateTime"):
            given = self._now_millis if prop.scalar == "DateTime" else self._now_millis // _MILLIS_PER_DAY
        return read_value(prop, given)
