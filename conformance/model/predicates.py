"""Which rows an update or a delete means, in the three truth values of SQL: true, false, and None for unknown.

    {"property": "age", "op": "ge", "value": 18}      eq ne lt le gt ge in is_null is_not_null
    {"and": [p, …]}   {"or": [p, …]}   {"not": p}     {"all": true}

A predicate is compiled first, so that a wrong one is refused even where there are no rows.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final

from conformance.model.errors import bad_request
from conformance.model.schema import Property, Type
from conformance.model.values import Row, Value

Truth = Callable[[Row], bool | None]
Reader = Callable[[Property, Any], Value]

_COMPARISONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
_ENDS: Final = {"from": "src", "to": "dst", "src": "src", "dst": "dst"}


def compile_predicate(owner: Type, where: Any, read: Reader) -> Truth:
    """The truth of a predicate for each row. `read` makes a typed value of a JSON one."""
    if type(where) is not dict:
        raise _refusal(where)
    if "property" in where:
        return _comparison(owner, where, read)
    if len(where) != 1:
        raise _refusal(where)
    [(word, inner)] = where.items()
    if word == "all" and inner is True:
        return lambda row: True
    if word == "not":
        part = compile_predicate(owner, inner, read)
        return lambda row: None if (truth := part(row)) is None else not truth
    if word not in ("and", "or") or type(inner) is not list or not inner:
        raise _refusal(where)
    parts = [compile_predicate(owner, each, read) for each in inner]
    decisive = word == "or"  # one true decides an "or", one false an "and"

    def combined(row: Row) -> bool | None:
        truths = [part(row) for part in parts]
        return decisive if decisive in truths else None if None in truths else not decisive

    return combined


def _comparison(owner: Type, where: dict[str, Any], read: Reader) -> Truth:
    prop, op = _property(owner, where["property"]), where.get("op")
    column = prop.name
    if where.keys() == {"property", "op"} and op in ("is_null", "is_not_null"):
        return lambda row: (row[column] is None) == (op == "is_null")
    if where.keys() != {"property", "op", "value"} or type(op) is not str or op not in (*_COMPARISONS, "in"):
        raise _refusal(where)
    if prop.is_list or prop.scalar in ("Blob", "Vector"):
        raise _refusal(where)
    if op == "in":
        if type(where["value"]) is not list:
            raise _refusal(where)
        members = [_operand(prop, each, read) for each in where["value"]]

        def is_member(row: Row) -> bool | None:
            if row[column] is None:
                return None
            return True if row[column] in members else None if None in members else False

        return is_member
    compare, operand = _COMPARISONS[op], _operand(prop, where["value"], read)
    return lambda row: None if row[column] is None or operand is None else compare(row[column], operand)


def _operand(prop: Property, given: Any, read: Reader) -> Value:
    return None if given is None else read(prop, given)


def _property(owner: Type, name: Any) -> Property:
    """On edges `from` and `to` are the endpoints, unless they are declared [MUT-12]."""
    declared = owner.property(name)
    if declared is not None:
        return declared
    column = _ENDS.get(name) if owner.kind == "edge" and type(name) is str else None
    if column is None and name != "id":
        raise bad_request("undeclared_property", f"{owner.name} has no property {name!r}")
    return Property(column or "id", "String")


def _refusal(where: Any) -> Exception:
    return bad_request("invalid_predicate", f"not a predicate: {where!r}")
