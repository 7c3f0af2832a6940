"""From one schema to another: the steps of a plan, and what they make of the rows [SCH-03 … SCH-08, SCH-19].

A plan pairs each type of the new schema with the accepted one that it comes from, by name or by `@rename_from`, and the
properties of the two in the same way. All pairs are made at once, so that renames compose and two names can be swapped.
What has no partner is added or dropped; what cannot be done to existing rows without guessing is unsupported, and then
nothing is done at all. Steps are JSON objects, as the driver protocol has them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Literal

from conformance.model.schema import Schema
from conformance.model.validate import Rows, State
from conformance.model.values import Row, json_text

Kind = Literal["interface", "node", "edge"]
Step = Mapping[str, Any]
Named = Mapping[str, Mapping[str, Any]]  # Types or properties of an IR, by name.

_GROUPS: Final[tuple[tuple[Kind, str], ...]] = (("interface", "interfaces"), ("node", "nodes"), ("edge", "edges"))
_FLAGS: Final = frozenset({"key", "unique", "index"})
_REQUIRED: Final = "OG-MF-103"
_RETYPED: Final = "OG-MF-106"


@dataclass(frozen=True)
class Origin:
    """Where the rows of a table come from: the accepted table, and its column for each property; new ones have none."""

    table_key: str
    columns: Mapping[str, str]


@dataclass(frozen=True)
class Plan:
    """What it takes to get from one schema to another."""

    steps: tuple[Step, ...]
    origins: Mapping[str, Origin] = field(repr=False)

    @property
    def supported(self) -> bool:
        return all(step["kind"] != "unsupported_change" for step in self.steps)

    def lost_tables(self) -> frozenset[str]:
        """Tables whose older states an engine may remove: the ones that a hard drop is about [SCH-07]."""
        keys = {f"{step['type_kind']}:{step['type_name']}" for step in self.steps if step.get("mode") == "hard"}
        return frozenset(keys | {self.origins[key].table_key for key in keys & self.origins.keys()})


def plan_evolution(old: Mapping[str, Any], new: Mapping[str, Any], *, allow_data_loss: bool = False) -> Plan:
    """The plan from one IR to another."""
    mode = "hard" if allow_data_loss else "soft"
    steps: list[Step] = []
    origins: dict[str, Origin] = {}
    node_pairs: dict[str, str] = {}
    for kind, group in _GROUPS:
        before, after = _by_name(old[group]), _by_name(new[group])
        pairs = _Pairs(before, after)
        if kind == "node":
            node_pairs = pairs.origin
        for name, owner in after.items():
            if name in pairs.faults:
                steps.append(_unsupported(kind, name, pairs.faults[name]))
            elif name not in pairs.origin:
                steps.append(_step("add_type", kind, name))
            elif kind == "interface":
                if before[name] != owner:
                    steps.append(_step("update_type_metadata", kind, name))
            else:
                change = _TypeChange(kind, before[pairs.origin[name]], owner, node_pairs, mode)
                steps += change.steps()
                origins[f"{kind}:{name}"] = Origin(f"{kind}:{pairs.origin[name]}", change.columns.origin)
        steps += [_step("drop_type", kind, name, mode=mode) for name in pairs.dropped]
    return Plan(tuple(steps), origins)


def evolve(state: State, schema: Schema, plan: Plan) -> State:
    """The rows of a state under a new schema: moved, with nulls for what is new [SCH-06, SCH-08]."""
    evolved: dict[str, Rows] = {}
    for key, owner in schema.types.items():
        origin = plan.origins.get(key)
        rows = {} if origin is None else state[origin.table_key]
        system = ("id", *owner.ends)
        columns = {prop.name: None if origin is None else origin.columns.get(prop.name) for prop in owner.properties}
        evolved[key] = {row_id: _moved(row, system, columns) for row_id, row in rows.items()}
    return evolved


def _moved(row: Row, system: Sequence[str], columns: Mapping[str, str | None]) -> Row:
    values = {name: None if source is None else row[source] for name, source in columns.items()}
    return MappingProxyType({**{column: row[column] for column in system}, **values})


# -- pairs -------------------------------------------------------------------------------------------------------


class _Pairs:
    """Which of the accepted names each new name comes from; what asks for an impossible rename is a fault [SCH-05]."""

    def __init__(self, before: Named, after: Named) -> None:
        self.faults: dict[str, str] = {}
        self.origin: dict[str, str] = {}
        claims = {name: wanted for name in after if (wanted := _rename(before, after, name)) is not None}
        self._refuse_taken(before, claims)
        holders = Counter(claims.values())
        for name in [name for name in after if name not in self.faults]:
            source = claims.get(name)
            stays = name in before and name not in holders
            if stays:  # A rename from what is not there was carried out long ago.
                self.origin[name] = name
            elif source is None:
                continue
            elif source not in before:
                self.faults[name] = f"{name!r} cannot be renamed from {source!r}, which is not there"
            elif holders[source] > 1:
                self.faults[name] = f"{name!r} is not the only one that is renamed from {source!r}"
            else:
                self.origin[name] = source
        kept = {*self.origin.values(), *holders, *self.faults, *(_rename_from(after[name]) for name in self.faults)}
        self.dropped = sorted(before.keys() - kept)
        self.renamed = {name: source for name, source in self.origin.items() if name != source}

    def _refuse_taken(self, before: Named, claims: dict[str, str]) -> None:
        """A name that stays cannot be given to another; one that asks for it stays itself, so look again each time."""
        while True:
            taken = [name for name, source in claims.items() if source in before and name in before]
            taken = [name for name in taken if name not in claims.values()]
            if not taken:
                return
            for name in taken:
                self.faults[name] = f"{name!r} is taken, and cannot be renamed from {claims.pop(name)!r}"


def _rename(before: Named, after: Named, name: str) -> str | None:
    """The name that another is renamed from, unless it is its own or that rename was carried out before."""
    source = _rename_from(after[name])
    carried_out = name in before and _rename_from(before[name]) == source
    return None if source == name or carried_out else source


def _rename_from(owner: Mapping[str, Any]) -> str | None:
    found = [each["value"] for each in owner.get("annotations", ()) if each["name"] == "rename_from"]
    return found[0] if found else None


# -- one type ----------------------------------------------------------------------------------------------------


class _TypeChange:
    """A type of the new schema, and the accepted one that it comes from."""

    def __init__(self, kind: Kind, old: Mapping[str, Any], new: Mapping[str, Any], nodes: Mapping[str, str], mode: str):
        self._kind = kind
        self._old = old
        self._new = new
        self._nodes = nodes
        self._mode = mode
        self._name: str = new["name"]
        self._before = _by_name(old["properties"])
        self._after = _by_name(new["properties"])
        self.columns = _Pairs(self._before, self._after)

    def steps(self) -> list[Step]:
        found: list[Step] = []
        is_renamed = self._old["name"] != self._name
        if is_renamed:
            found.append({**_step("rename_type", self._kind, self._name), "from": self._old["name"], "to": self._name})
        found += self._edge_steps()
        for name in self._after:
            found += self._property_steps(name)
        for name in self.columns.dropped:
            found.append(_step("drop_property", self._kind, self._name, property_name=name, mode=self._mode))
        found += self._rule_steps()
        is_changed = _told(self._old, is_renamed) != _told(self._new, is_renamed)
        if is_changed or (not found and self._details(self._old) != self._details(self._new)):
            annotations = self._new["annotations"]
            found.append(_step("update_type_metadata", self._kind, self._name, annotations=annotations))
        return found

    def _edge_steps(self) -> Iterator[Step]:
        if self._kind != "edge":
            return
        for end in ("from_type", "to_type"):
            if self._nodes.get(self._new[end]) != self._old[end]:
                yield _unsupported(self._kind, self._name, "the edges would join nodes of another type")
                break
        if self._old["cardinality"] != self._new["cardinality"]:
            yield _unsupported(self._kind, self._name, "existing edges were not counted against the new cardinality")

    def _property_steps(self, name: str) -> Iterator[Step]:
        about = (self._kind, self._name)
        prop = self._after[name]
        if name in self.columns.faults:
            yield _unsupported(*about, self.columns.faults[name], property_name=name)
            return
        if name not in self.columns.origin:
            if prop["prop_type"]["nullable"]:
                yield _step("add_property", *about, property_name=name, property_type=prop["prop_type"])
            else:
                reason = "existing rows have no value for a new property that must have one"
                yield _unsupported(*about, reason, property_name=name, code=_REQUIRED)
            return
        source = self.columns.origin[name]
        if source != name:
            yield {**_step("rename_property", *about, property_name=name), "from": source, "to": name}
        was = self._before[source]
        if was["prop_type"] != prop["prop_type"]:
            reason = "existing values are of another type"
            yield _unsupported(*about, reason, property_name=name, code=_RETYPED)
        if _told(was, source != name) != _told(prop, source != name):
            yield _step("update_property_metadata", *about, property_name=name, annotations=prop["annotations"])

    def _rule_steps(self) -> Iterator[Step]:
        """Rules cannot be taken away, and but for an index not be added: no row was held to them [SCH-05]."""
        now = {source: name for name, source in self.columns.renamed.items()}
        before = {json_text(_rule_with(rule, now)) for rule in self._old["constraints"]}
        after = {json_text(rule): rule for rule in self._new["constraints"]}
        for text in sorted(before - after.keys()):
            yield _unsupported(self._kind, self._name, f"the rule {text} would go")
        for text, rule in after.items():
            if text in before:
                continue
            if "Index" in rule:
                yield _step("add_constraint", self._kind, self._name, constraint=rule)
            else:
                yield _unsupported(self._kind, self._name, f"no existing row was held to the rule {text}")
        for rule in self._old["constraints"]:
            moved_key = [now.get(column, column) for column in sorted(rule.get("Key", ()))]
            if moved_key != sorted(moved_key):
                yield _unsupported(self._kind, self._name, "the key's columns would change places, and so the ids")

    def _details(self, owner: Mapping[str, Any]) -> list[Any]:
        """All that can be told apart and has no step of its own."""
        annotations = [each["annotations"] for each in owner["properties"]]
        return [owner.get("implements"), annotations, owner["constraints"]]


def _told(owner: Mapping[str, Any], is_renamed: bool) -> list[Any]:
    """The annotations that are neither rules nor a rename that has a step."""
    hidden = _FLAGS | {"rename_from"} if is_renamed else _FLAGS
    return [each for each in owner["annotations"] if each["name"] not in hidden]


def _rule_with(rule: Mapping[str, Any], now: Mapping[str, str]) -> dict[str, Any]:
    """A rule with its columns under their new names."""
    [(kind, body)] = rule.items()
    if isinstance(body, list):
        return {kind: sorted(now.get(column, column) for column in body)}
    return {kind: {**body, "property": now.get(body["property"], body["property"])}}


# -- steps -------------------------------------------------------------------------------------------------------


def _by_name(declared: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    return {each["name"]: each for each in declared}


def _step(what: str, kind: Kind, name: str, **details: Any) -> Step:
    return {"kind": what, "type_kind": kind, "type_name": name, **details}


def _unsupported(kind: Kind, name: str, reason: str, **details: Any) -> Step:
    entity = f"{kind}:{name}" + (f".{details['property_name']}" if "property_name" in details else "")
    return _step("unsupported_change", kind, name, **details, entity=entity, reason=reason)
