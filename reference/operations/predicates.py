"""Predicates: which rows an update, a delete or a read is about.

    {"property": "age", "op": "ge", "value": 18}      eq ne lt le gt ge in is_null is_not_null
    {"and": [p, …]}   {"or": [p, …]}   {"not": p}     {"all": true}

A predicate is compiled against a type, so that whatever is wrong with it is said before a row is read, and evaluated
on Arrow columns with a value of the property's own type. No text of a query language is built from it: a property
may be called `null` or `interval`, and large integers stay exact [VAL-16]. Nulls are as in SQL: a comparison with
null is neither true nor false, and only what is true is meant [MUT-11].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from reference.errors import BadRequest
from reference.format import values
from reference.schema.types import EdgeType, NodeType, Property, PropertyType

DEPTH_MAX: Final = 50

# True, false or null for each row.
Truth = Callable[[pa.Table], Any]
# A value of a predicate as a typed one; a mutation also knows what `{"now": true}` is.
Literal = Callable[[Property, Any, str], Any]

_COMPARISONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "eq": pc.equal,
    "ne": pc.not_equal,
    "lt": pc.less,
    "le": pc.less_equal,
    "gt": pc.greater,
    "ge": pc.greater_equal,
}
_NULL_TESTS: Final = ("is_null", "is_not_null")
_ENDPOINTS: Final = {"from": "src", "to": "dst", "src": "src", "dst": "dst"}


@dataclass(frozen=True)
class Predicate:
    """A compiled predicate: the columns it looks at and, where it says so, the only ids that can fit."""

    columns: frozenset[str]
    ids: frozenset[str] | None
    truth: Truth

    def mask(self, rows: pa.Table) -> pa.Array:
        """Which rows fit."""
        found = self.truth(rows)
        found = found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
        return pc.fill_null(found, False)


def compile_predicate(
    owner: NodeType | EdgeType, where: Any, place: str, literal: Literal = values.literal
) -> Predicate:
    """A predicate in JSON, checked against the type; `place` ("statement 2") begins every refusal."""
    return _compile(owner, where, place, literal, 0)


def _compile(owner: NodeType | EdgeType, where: Any, place: str, literal: Literal, depth: int) -> Predicate:
    if type(where) is not dict or not where:
        raise _refusal(place, f"a predicate is an object that says something, not {values.shown(where)}")
    if depth > DEPTH_MAX:
        raise _refusal(place, f"the predicate is nested deeper than {DEPTH_MAX}")
    if "property" in where:
        return _comparison(owner, where, place, literal)
    if len(where) != 1 or not where.keys() & {"and", "or", "not", "all"}:
        raise _refusal(place, f"a predicate has 'property', or one of 'and', 'or', 'not', 'all': {values.shown(where)}")
    word, inner = next(iter(where.items()))
    if word == "all":
        if inner is not True:
            raise _refusal(place, 'every row is meant by {"all": true} and by nothing else')
        return Predicate(frozenset(), None, lambda rows: pa.repeat(True, rows.num_rows))
    if word == "not":
        part = _compile(owner, inner, place, literal, depth + 1)
        return Predicate(part.columns, None, lambda rows: pc.invert(part.truth(rows)))
    if type(inner) is not list or not inner:
        raise _refusal(place, f"'{word}' takes a list of predicates, not {values.shown(inner)}")
    parts = [_compile(owner, each, place, literal, depth + 1) for each in inner]
    return _both(parts) if word == "and" else _either(parts)


def _both(parts: Sequence[Predicate]) -> Predicate:
    known = [part.ids for part in parts if part.ids is not None]
    ids = frozenset.intersection(*known) if known else None
    columns = frozenset[str]().union(*(part.columns for part in parts))
    return Predicate(columns, ids, lambda rows: reduce(pc.and_kleene, [part.truth(rows) for part in parts]))


def _either(parts: Sequence[Predicate]) -> Predicate:
    known = [part.ids for part in parts if part.ids is not None]
    ids = frozenset[str]().union(*known) if len(known) == len(parts) else None
    columns = frozenset[str]().union(*(part.columns for part in parts))
    return Predicate(columns, ids, lambda rows: reduce(pc.or_kleene, [part.truth(rows) for part in parts]))


def _comparison(owner: NodeType | EdgeType, where: dict[str, Any], place: str, literal: Literal) -> Predicate:
    column, prop = _column(owner, where["property"], place)
    op = where.get("op")
    fields = {"property", "op"} if op in _NULL_TESTS else {"property", "op", "value"}
    if op == "contains":
        raise _refusal(place, "'contains' is not an operator of predicates", code="unsupported_operator")
    if type(op) is not str or op not in (*_COMPARISONS, "in", *_NULL_TESTS):
        known = ", ".join((*_COMPARISONS, "in", *_NULL_TESTS))
        raise _refusal(place, f"{values.shown(op)} is not an operator; there are {known}", property=prop.name)
    if where.keys() != fields:
        odd = sorted(where.keys() ^ fields)
        raise _refusal(place, f"'{op}' has the fields {', '.join(sorted(fields))}: look at {', '.join(odd)}")
    columns = frozenset({column})
    if op == "is_null":
        return Predicate(columns, None, lambda rows: pc.is_null(rows[column]))
    if op == "is_not_null":
        return Predicate(columns, None, lambda rows: pc.is_valid(rows[column]))
    if prop.type.is_list or prop.type.scalar in ("Blob", "Vector"):
        raise _refusal(place, f"'{prop.name}' of type {prop.type} can only be asked for nulls", property=prop.name)
    value, kind = where["value"], prop.type.arrow_type()
    if op == "in":
        if type(value) is not list:
            raise _refusal(place, f"'in' takes a list of values, not {values.shown(value)}", property=prop.name)
        wanted = [literal(prop, each, place) for each in value]
        ids = frozenset(each for each in wanted if each is not None) if column == "id" else None
        members = pa.array([each for each in wanted if each is not None], kind)
        return Predicate(columns, ids, _membership(column, members, null_given=None in wanted))
    operand = literal(prop, value, place)
    ids = frozenset({operand}) if column == "id" and op == "eq" and operand is not None else None
    compare, scalar = _COMPARISONS[op], pa.scalar(operand, kind)
    return Predicate(columns, ids, lambda rows: compare(rows[column], scalar))


def _membership(column: str, members: pa.Array, *, null_given: bool) -> Truth:
    def truth(rows: pa.Table) -> Any:
        tested = _one_zero(rows[column])
        found = pc.is_in(tested, value_set=_one_zero(members))
        undecided = pc.invert(found) if null_given else pc.is_null(tested)
        return pc.if_else(undecided, pa.scalar(None, pa.bool_()), found)

    return truth


def _one_zero(array: Any) -> Any:
    """Comparisons of Arrow take -0.0 for 0.0, look-ups do not: here they do."""
    return pc.add(array, pa.scalar(0.0, array.type)) if pa.types.is_floating(array.type) else array


def _column(owner: NodeType | EdgeType, name: Any, place: str) -> tuple[str, Property]:
    """The column that a name means. On edges `from` and `to` are the endpoints, unless they are declared [MUT-12]."""
    prop = owner.property(name) if type(name) is str else None
    if prop is not None:
        return prop.name, prop
    column = "id" if name == "id" else None
    if isinstance(owner, EdgeType) and type(name) is str:
        column = _ENDPOINTS.get(name, column)
    if column is None:
        code = "undeclared_property"
        raise _refusal(place, f"{owner.name} declares no property {values.shown(name)}", code=code, property=name)
    return column, Property(column, PropertyType("String"))


def _refusal(place: str, message: str, code: str = "invalid_predicate", **details: Any) -> BadRequest:
    details = {name: values.detail(value) for name, value in details.items()}
    return BadRequest(f"{place}: {message}", code=code, details=details)
