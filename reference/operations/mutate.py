"""Mutate: a query of inserts and updates, or of deletes, as one graph commit [MUT, DEL].

    {"op": "insert", "type": "Person", "data": {…}}
    {"op": "insert", "edge": "Knows", "from": id, "to": id, "data": {…}}
    {"op": "update", "type": "Person", "where": {…}, "set": {…}}
    {"op": "delete", "type": "Person", "where": {…}}        also "edge"

A query is run in memory on one snapshot: each statement sees what those before it did. Only when all of it has
worked out, and the whole change is valid, are files written. `{"now": true}` is the time of the query, as a Date or a
DateTime, the same in all its statements [MUT-14].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from reference.errors import BadRequest
from reference.failpoint import fire
from reference.format import values
from reference.format.manifest import GraphCommit
from reference.format.records import rows_to_table
from reference.operations.branches import refuse_internal
from reference.operations.changeset import ChangeSet, TableChange, commit_changes
from reference.operations.predicates import Predicate, compile_predicate
from reference.operations.reading import PROBE_VALUES_MAX, one_of, read_entry, read_matching
from reference.operations.validate import endpoints_recheck, refuse_violations
from reference.protocol.commit import with_retries
from reference.protocol.manifests import Snapshot, branch_key
from reference.protocol.publish import now_micros
from reference.protocol.recovery import heal
from reference.protocol.store import GraphStore
from reference.schema.types import Catalog, EdgeType, NodeType, Property

Statement = dict[str, Any]

_FIELDS: Final = {
    ("insert", "type"): frozenset({"op", "type", "data"}),
    ("insert", "edge"): frozenset({"op", "edge", "from", "to", "data"}),
    ("update", "type"): frozenset({"op", "type", "where", "set"}),
    ("delete", "type"): frozenset({"op", "type", "where"}),
    ("delete", "edge"): frozenset({"op", "edge", "where"}),
}
_MILLIS_PER_DAY: Final = 86_400_000


@dataclass(frozen=True)
class MutationResult:
    """What a mutation did. No commit was made if it touched nothing [LIN-03]."""

    affected_nodes: int
    affected_edges: int
    commit: GraphCommit | None

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "commit": None if self.commit is None else self.commit.to_json()}


def mutate(
    store: GraphStore,
    branch: str | None,
    statements: Sequence[Any],
    *,
    actor: str | None = None,
    name: str = "mutation",
) -> MutationResult:
    """Run a query and commit what it changes. What is wrong with its shape is said before anything is read."""
    _check_shape(statements, name)
    refuse_internal(branch or "", name)
    heal(store)
    now_millis = now_micros() // 1000

    def run() -> _Run:
        snapshot = store.manifests.fresh(branch_key(branch)).snapshot()
        done = _Run(store, store.schema.current().catalog, snapshot, now_millis)
        for number, statement in enumerate(statements, 1):
            done.execute(statement, f"statement {number}")
        refuse_violations(store, done.catalog, done.changes())
        return done

    if all(statement["op"] == "insert" for statement in statements):
        return with_retries(store, lambda: _commit(store, run(), actor), strict=False)
    # The rows of an update or delete were chosen on one snapshot, and are not chosen again on a later one [PUB-18].
    chosen = run()
    return with_retries(store, lambda: _commit(store, chosen, actor), strict=True)


def _commit(store: GraphStore, run: _Run, actor: str | None) -> MutationResult:
    changes = run.changes()
    commit = None
    if changes:
        commit = commit_changes(
            store,
            run.catalog,
            changes,
            kind="Mutation",
            actor=actor,
            recheck=endpoints_recheck(store, run.catalog, changes),
            committed=lambda: fire("mutation.post_finalize_pre_publisher"),
        )
    return MutationResult(run.affected_nodes, run.affected_edges, commit)


# -- the shape of a query -----------------------------------------------------------------------------------------


def _check_shape(statements: Sequence[Any], name: str) -> None:
    for number, statement in enumerate(statements, 1):
        _check_statement(statement, f"statement {number}")
    deletes = sum(statement["op"] == "delete" for statement in statements)
    if 0 < deletes < len(statements):
        raise BadRequest(
            f"'{name}' both deletes and writes rows",
            code="mixed_mutation",
            details={"mutation": name},
            hint="make two mutations of it: first the inserts and updates, then the deletes",
        )


def _check_statement(statement: Any, place: str) -> None:
    if type(statement) is not dict:
        raise _refusal(place, f"an object is needed, not {values.shown(statement)}")
    op, kinds = statement.get("op"), [kind for kind in ("type", "edge") if kind in statement]
    if op not in ("insert", "update", "delete"):
        raise _refusal(place, f"'op' is insert, update or delete, not {values.shown(op)}")
    if len(kinds) != 1 or type(statement[kinds[0]]) is not str:
        raise _refusal(place, "exactly one of 'type' and 'edge' must name what it is about")
    allowed = _FIELDS.get((op, kinds[0]))
    if allowed is None:
        raise _refusal(place, "only nodes can be updated", code="update_of_edge")
    unknown = sorted(map(values.shown, statement.keys() - allowed))
    missing = sorted(allowed - statement.keys() - {"data"})
    if unknown:
        raise _refusal(place, f"{op} has no field {unknown[0]}", code="unknown_field")
    if missing:
        raise _refusal(place, f"{op} needs '{missing[0]}'", code="missing_field", field=missing[0])
    for part in ("data", "set"):
        if type(statement.get(part, {})) is not dict:
            raise _refusal(place, f"'{part}' must be an object, not {values.shown(statement[part])}")


def _refusal(place: str, message: str, code: str = "invalid_statement", **details: Any) -> BadRequest:
    return BadRequest(f"{place}: {message}", code=code, details=details)


# -- running a query ----------------------------------------------------------------------------------------------


@dataclass
class _Pending:
    """The rows that a query has written to one table so far."""

    parts: list[pa.Table] = field(default_factory=list)
    may_replace: bool = False

    def rows(self) -> pa.Table:
        """One row per id: the last that was written [MUT-07]."""
        table = pa.concat_tables(self.parts).combine_chunks()
        last = {row_id: index for index, row_id in enumerate(table["id"].to_pylist())}
        if len(last) < table.num_rows:
            table = table.take(pa.array(sorted(last.values())))
        self.parts = [table]
        return table


@dataclass
class _Run:
    """A query at work: a snapshot, and what the statements so far have made of it."""

    store: GraphStore
    catalog: Catalog
    snapshot: Snapshot
    now_millis: int
    affected_nodes: int = 0
    affected_edges: int = 0
    pending: dict[str, _Pending] = field(default_factory=dict)
    deleted: dict[str, set[str]] = field(default_factory=dict)

    def changes(self) -> ChangeSet:
        tables: dict[str, TableChange] = {}
        for key, pending in self.pending.items():
            tables[key] = TableChange(key, pending.rows(), how="merge" if pending.may_replace else "append")
        for key, ids in self.deleted.items():
            tables[key] = TableChange(key, self.catalog.arrow_schema(key).empty_table(), frozenset(ids))
        return ChangeSet(self.snapshot, tables)

    def execute(self, statement: Statement, place: str) -> None:
        operations: dict[str, Callable[[NodeType | EdgeType, Statement, str], None]] = {
            "insert": self._insert,
            "update": self._update,
            "delete": self._delete,
        }
        operations[statement["op"]](self._owner(statement, place), statement, place)

    def _owner(self, statement: Statement, place: str) -> NodeType | EdgeType:
        name: str = statement["type"] if "type" in statement else statement["edge"]
        owner = self.catalog.nodes.get(name) if "type" in statement else self.catalog.edge_by_name(name)
        if owner is None:
            raise _refusal(
                place, f"the schema has no type {values.shown(name)}", code="unknown_type", type=values.detail(name)
            )
        return owner

    def _literal(self, prop: Property, value: Any, place: str) -> Any:
        return values.literal(prop, self._with_now(prop, value), place)

    def _with_now(self, prop: Property | None, value: Any) -> Any:
        asks = type(value) is dict and list(value) == ["now"] and value["now"] is True
        if asks and prop is not None and not prop.type.is_list:
            if prop.type.scalar == "DateTime":
                return self.now_millis
            if prop.type.scalar == "Date":
                return self.now_millis // _MILLIS_PER_DAY
        return value

    def _insert(self, owner: NodeType | EdgeType, statement: Statement, place: str) -> None:
        key = owner.table_key
        given = statement.get("data", {})
        data = {name: self._with_now(owner.property(name), value) for name, value in given.items()}
        ends = [(statement["from"], statement["to"])] if isinstance(owner, EdgeType) else []
        row = rows_to_table(self.catalog, key, [data], place, ends)
        if "id" in data and not owner.key:
            self._refuse_existing(key, row, place)
        pending = self.pending.setdefault(key, _Pending())
        pending.parts.append(row)
        pending.may_replace |= bool(owner.key)
        self._count(owner, 1)

    def _refuse_existing(self, key: str, row: pa.Table, place: str) -> None:
        """An id that was chosen by hand must be free: an insert without a key replaces nothing [LOD-07]."""
        row_id = row["id"][0].as_py()
        held = self.pending[key].rows()["id"].to_pylist() if key in self.pending else []
        ids = row.select(["id"])
        if row_id in held or read_matching(self.store, self.snapshot.entry(key), ids.schema, "id", ids["id"]).num_rows:
            raise _refusal(
                place,
                f"{key} has a row with the id {values.shown(row_id)} already",
                code="row_exists",
                table_key=key,
                row_id=values.detail(row_id),
            )

    def _update(self, owner: NodeType | EdgeType, statement: Statement, place: str) -> None:
        key = owner.table_key
        columns = self._assigned(owner, statement["set"], place)
        predicate = compile_predicate(owner, statement["where"], place, self._literal)
        pending = self.pending.get(key, _Pending([self.catalog.arrow_schema(key).empty_table()]))
        written = pending.rows()
        ids = set(self._matching_ids(key, predicate)) - set(written["id"].to_pylist())
        rows = pa.concat_tables([self._committed_rows(key, ids), written.filter(predicate.mask(written))])
        if not rows.num_rows:
            return
        for name, column in columns.items():
            index = rows.schema.get_field_index(name)
            rows = rows.set_column(index, rows.schema.field(index), column.take(pa.array([0] * rows.num_rows)))
        pending.parts.append(rows)
        pending.may_replace |= bool(ids)
        self.pending[key] = pending
        self._count(owner, rows.num_rows)

    def _assigned(self, owner: NodeType | EdgeType, given: dict[str, Any], place: str) -> dict[str, pa.Array]:
        """The new values, each as a column of one row."""
        if not given:
            raise _refusal(place, "'set' assigns nothing", field="set")
        columns: dict[str, pa.Array] = {}
        for name, value in given.items():
            prop = owner.property(name)
            if prop is None or name in owner.key:
                why = "is not a property of" if prop is None else "is the key of"
                code = "undeclared_property" if prop is None else "update_of_key"
                raise _refusal(
                    place, f"{values.shown(name)} {why} {owner.name}", code=code, property=values.detail(name)
                )
            columns[name] = values.column(prop, [self._with_now(prop, value)], lambda _: place)
        return columns

    def _matching_ids(self, key: str, predicate: Predicate) -> list[str]:
        """The ids of the committed rows that a predicate means."""
        entry, ids = self.snapshot.entry(key), predicate.ids
        if not entry.row_count or (ids is not None and not ids):
            return []
        where = one_of("id", sorted(ids)) if ids is not None and len(ids) <= PROBE_VALUES_MAX else None
        rows = read_entry(self.store, entry, columns=sorted({"id", *predicate.columns}), where=where).writable()
        return list(rows["id"].filter(predicate.mask(rows)).to_pylist())

    def _committed_rows(self, key: str, ids: set[str]) -> pa.Table:
        """Whole rows as they were committed. Contents of blobs are read of these rows only."""
        schema, entry, wanted = self.catalog.arrow_schema(key), self.snapshot.entry(key), sorted(ids)
        tables = [schema.empty_table()]
        if all(prop.type.scalar != "Blob" for prop in self.catalog.type_of(key).properties):
            tables.append(read_matching(self.store, entry, schema, "id", pa.array(wanted, pa.string())))
            wanted = []
        for start in range(0, len(wanted), PROBE_VALUES_MAX):
            where = one_of("id", wanted[start : start + PROBE_VALUES_MAX])
            tables.append(read_entry(self.store, entry, columns=schema.names, where=where).writable())
        return pa.concat_tables([pa.Table.from_arrays(table.columns, schema=schema) for table in tables])

    def _delete(self, owner: NodeType | EdgeType, statement: Statement, place: str) -> None:
        key = owner.table_key
        predicate = compile_predicate(owner, statement["where"], place, self._literal)
        ids = set(self._matching_ids(key, predicate)) - self.deleted.get(key, set())
        if not ids:
            return
        cascade: dict[str, set[str]] = {}
        if isinstance(owner, NodeType):
            cascade = {edge.table_key: self._incident(edge, owner, ids) for edge in self.catalog.edges.values()}
            fire("mutation.delete_node_pre_primary_delete")
        self._count(owner, len(ids))
        self.affected_edges += sum(map(len, cascade.values()))
        for table_key, found in {**cascade, key: ids}.items():
            if found:
                self.deleted.setdefault(table_key, set()).update(found)

    def _incident(self, edge: EdgeType, node: NodeType, ids: set[str]) -> set[str]:
        """The edges that end at one of some nodes and are not deleted yet [DEL-02]."""
        key, found = edge.table_key, set[str]()
        columns = pa.schema(list(self.catalog.arrow_schema(key))[:3])  # id, src, dst
        for side, end in (("src", edge.from_type), ("dst", edge.to_type)):
            if end == node.name:
                wanted = pa.array(sorted(ids), pa.string())
                rows = read_matching(self.store, self.snapshot.entry(key), columns, side, wanted)
                found.update(rows["id"].to_pylist())
        return found - self.deleted.get(key, set())

    def _count(self, owner: NodeType | EdgeType, rows: int) -> None:
        if isinstance(owner, NodeType):
            self.affected_nodes += rows
        else:
            self.affected_edges += rows
