"""What is special about an operation: the requirement that speaks of just that, where one does.

`blame` says what an operation stands for in general. A merge of edits that cancel out, a load of rows whose key has two
columns, a predicate on a date: each has a requirement of its own, and a failure there is that one's. What is special is
looked for before the operation is done, in the request and in the model; whether it is the cause nobody can know, so
these are for disagreements about which no test has said what is tried.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from conformance.judge.blame import REFUSALS, operation_of
from conformance.model import Model, Refusal
from conformance.model.branch_names import is_well_formed, lies_inside_another
from conformance.model.merge import Commit
from conformance.model.records import read_records
from conformance.model.schema import Type, schema_from_ir
from conformance.model.schema_text import compile_schema
from conformance.model.validate import State
from conformance.model.values import Row, Value, same_row
from conformance.registry import requirements

# Beyond these a double tells whole numbers no longer apart.
_EXACT_MAX: Final = 2**53
_SIGNED_MAX: Final = 2**63 - 1
# Scalars that a predicate compares as what they are, and not as a text or a signed number of 64 bits.
_TYPED: Final = ("Bool", "U32", "U64", "F32", "Date", "DateTime")
# Words of SQL that a property may be called all the same.
_SQL: Final = (
    "all", "and", "any", "as", "between", "by", "case", "date", "default", "distinct", "else", "end", "exists",
    "false", "group", "having", "in", "interval", "is", "join", "like", "limit", "not", "null", "on", "or", "order",
    "select", "table", "then", "time", "timestamp", "true", "union", "unique", "user", "values", "when", "where",
    "with",
)  # fmt: skip


@dataclass(frozen=True)
class Subject:
    """The requirements that an operation stands for: when it is refused, and when it does something else.

    `decides` are those that win over the reason for which the model refuses it.
    """

    refused: str
    conflict: str
    otherwise: str
    decides: Mapping[str, str]
    # What it stands for when the store is said to have failed, which a sound graph gives no cause for.
    broke_down: str | None = None

    def when_refused(self, kind: str) -> str:
        if kind == "storage" and self.broke_down is not None:
            return self.broke_down
        return self.conflict if kind == "conflict" else self.refused

    def is_open(self, kind: str) -> bool:
        """Whether it may be refused as it may be done: a known gap of the format."""
        return requirements()[self.when_refused(kind)].level == "gap"

    def when_done(self, code: str) -> str:
        """The requirement that is broken by whoever does what must be refused for that reason."""
        return self.decides.get(code) or REFUSALS.get(code, self.otherwise)


def subject_of(model: Model, op: str, args: Mapping[str, Any]) -> Subject:
    """What an operation stands for, in the graph as it is before it."""
    general = operation_of(op, args)
    named = [str(args[each]) for each in ("name", "source", "target", "branch", "base") if args.get(each) is not None]
    if not all(map(is_well_formed, named if op != "schema_apply" else ())):
        # A name that no branch can have is one that no branch has, whatever a refused attempt has left of it.
        return Subject(general, general, general, {"branch_not_found": "BRA-02"})
    if op in ("branch_create", "branch_delete") and lies_inside_another(str(args.get("name"))):
        return Subject("BRA-16", "BRA-16", "BRA-16", {})
    if op == "merge":
        return _merge(model, str(args.get("source")), str(args.get("target")), general)
    special = general
    if op == "load":
        special = _load(model, str(args.get("data", ""))) or general
    elif op == "mutate":
        special = _mutation(model, args.get("statements", [])) or general
    elif op == "schema_apply":
        special = _schema(model, str(args.get("source", ""))) or general
    branch = str(args.get("branch", "main"))
    broke_down = "BRA-17" if _stands_on_another(model, branch, args.get("base")) else None
    if op == "load" and special == general and args.get("base") is not None and branch not in model.branch_list():
        return Subject("LOD-12", general, general, _decided(op, args), broke_down)
    if op == "mutate" and special == general and _updates_what_it_wrote(args.get("statements", [])):
        return Subject("MUT-07", "MUT-07", "MUT-04", _large_numbers(op, args), broke_down)
    return Subject(special, special, special, _decided(op, args), broke_down)


def _stands_on_another(model: Model, branch: str, base: str | None) -> bool:
    """Whether a branch has taken its tables from another one than main: it was made from it, or has merged it."""
    if branch == "main":
        return False
    if branch not in model.branch_list():
        return base not in (None, "main")
    own = (commit for commit in model.commits(branch) if commit.branch == branch)
    merged = (parent.branch for commit in own for parent in model.parents(commit)[1:])
    return model.source(branch) != "main" or any(each not in ("main", branch) for each in merged)


# -- merges --------------------------------------------------------------------------------------------------------


def _merge(model: Model, source: str, target: str, general: str) -> Subject:
    there = model.branch_list()
    if source not in there or target not in there or source == target:
        return Subject(general, general, general, {})
    base, theirs, ours = model.met(source, target), model.head(source), model.head(target)
    if base is None:
        return Subject(general, general, general, {})
    # Where another commit is as near, who counts steps finds another base, and takes old rows for what both had.
    moved = "LIN-13" if model.nearest(source, target) != [base] else general
    changed = list(_changed(base.state, theirs.state))
    if not changed and base.number != theirs.number:
        return Subject("MRG-10", moved, "MRG-10" if moved == general else moved, {})
    alike = any(_text(new) == _text(was) for was, new in changed) or _conflicts_alike(base, theirs, ours)
    if alike:
        return Subject("MRG-13", "MRG-13", "MRG-13", {"merge_conflicts": "MRG-13"})
    return Subject(general, moved, moved, {})


def _changed(before: State, after: State) -> Iterator[tuple[Row | None, Row | None]]:
    for table_key in before.keys() & after.keys():
        for row_id in before[table_key].keys() | after[table_key].keys():
            was, new = before[table_key].get(row_id), after[table_key].get(row_id)
            if not same_row(was, new):
                yield was, new


def _conflicts_alike(base: Commit, theirs: Commit, ours: Commit) -> bool:
    """Whether both have changed a row to values that only look the same when they are written down without care."""
    for table_key in base.state.keys() & theirs.state.keys() & ours.state.keys():
        for row_id, new in theirs.state[table_key].items():
            was, old = base.state[table_key].get(row_id), ours.state[table_key].get(row_id)
            if not same_row(new, was) and not same_row(new, old) and _text(new) == _text(old):
                return True
    return False


def _text(row: Row | None) -> str | None:
    """A row as a careless text: no nulls, no lists, no blobs, nothing that marks where a value ends."""
    if row is None:
        return None
    return "".join(_value_text(row[name]) for name in sorted(row) if not name.startswith("_row")).replace("\x1f", "")


def _value_text(value: Value) -> str:
    if value is None or isinstance(value, bytes):
        return ""
    return ", ".join(map(_value_text, value)) if isinstance(value, tuple) else str(value)


def _schema(model: Model, source: str) -> str | None:
    """A type whose name another one had before is a known gap [SCH-15]; names may change hands in one plan [SCH-19]."""
    try:
        wanted, plan = schema_from_ir(compile_schema(source)).types, model.schema_plan(source)
    except Refusal:
        return None
    ever = {table_key for commit in model.commits() for table_key in commit.schema.types}
    if (wanted.keys() - model.schema.types.keys()) & ever:
        return "SCH-15"
    types = {key: origin.table_key for key, origin in plan.origins.items()}
    columns = [(origin.columns, [prop.name for prop in wanted[key].properties]) for key, origin in plan.origins.items()]
    return "SCH-19" if any(_hands_on(pairs, names) for pairs, names in [(types, wanted), *columns]) else None


def _hands_on(origins: Mapping[str, str], names: Iterable[str]) -> bool:
    """Whether a name that something is renamed from has a new owner at once."""
    return not {old for new, old in origins.items() if new != old}.isdisjoint(names)


# -- rows and predicates -------------------------------------------------------------------------------------------


def _load(model: Model, data: str) -> str | None:
    """What a load is a case of: keys of several columns or of other types, blobs that are elsewhere or of no bytes."""
    try:
        records = read_records(model.schema, data, lambda: "new")
    except Refusal:
        return None
    owners = [owner for owner, _ in records]
    if any(len(owner.key) > 1 for owner in owners):
        return "VAL-14"
    if any(_key_scalar(owner) not in ("", "String") for owner in owners):
        return "LOD-17"
    blobs = [row[each.name] for owner, row in records for each in owner.properties if each.scalar == "Blob"]
    if any(isinstance(each, str) for each in blobs):
        return "LAY-16"
    return "EXP-06" if b"" in blobs else None


def _key_scalar(owner: Type) -> str:
    key = owner.property(owner.key[0]) if owner.key else None
    return "" if key is None else key.scalar


def _mutation(model: Model, statements: Iterable[Mapping[str, Any]]) -> str | None:
    """Predicates on a type or a name of their own [VAL-16], numbers that only an unsigned one can hold, empty blobs."""
    for statement in statements:
        kind = "edge" if "edge" in statement else "node"
        owner = model.schema.types.get(f"{kind}:{statement.get('edge' if kind == 'edge' else 'type')}")
        for name, value in _compared(statement.get("where", {})):
            prop = None if owner is None else owner.property(name)
            typed = prop is not None and prop.scalar in _TYPED
            if typed or name.lower() in _SQL or any(each > _EXACT_MAX for each in _numbers(value)):
                return "VAL-16"
        given = {**statement.get("data", {}), **statement.get("set", {})}
        if any(each > _SIGNED_MAX for each in _numbers(given)):
            return "LOD-14"
        if "base64:" in given.values():
            return "EXP-06"
    return None


def _updates_what_it_wrote(statements: Iterable[Mapping[str, Any]]) -> bool:
    """Whether an update may meet rows that an earlier statement wrote: it has to see them, and each is one row."""
    written = set()
    for statement in statements:
        if statement.get("op") == "update" and statement.get("type") in written:
            return True
        written.add(statement.get("type"))
    return False


def _compared(where: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The properties of a predicate, and what each is compared with."""
    if "property" in where:
        yield str(where["property"]), where.get("value")
    for name in ("and", "or", "not"):
        parts = where.get(name, [])
        for part in parts if isinstance(parts, list) else [parts]:
            yield from _compared(part)


def _decided(op: str, args: Mapping[str, Any]) -> Mapping[str, str]:
    """An overwrite is held to what depends on the rows that it drops [LOD-10]."""
    dropped = {"OrphanEdge": "LOD-10", "CardinalityViolation": "LOD-10"} if args.get("mode") == "overwrite" else {}
    return {**dropped, **_large_numbers(op, args)}


def _large_numbers(op: str, args: Mapping[str, Any]) -> Mapping[str, str]:
    """Rules on numbers that a double does not tell apart must be exact [VAL-16]."""
    given = args.get("statements", []) if op == "mutate" else args.get("data", "")
    numbers = (int(each) for each in re.findall(r"\d{16,20}", given)) if isinstance(given, str) else _numbers(given)
    if not any(each > _EXACT_MAX for each in numbers):
        return {}
    return {"ValueConstraintViolation": "VAL-16", "UniqueViolation": "VAL-16", "unique_violation": "VAL-16"}


def _numbers(value: Any) -> Iterator[int]:
    if isinstance(value, int) and not isinstance(value, bool):
        yield abs(value)
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _numbers(each)
    elif isinstance(value, list):
        for each in value:
            yield from _numbers(each)
