"""What it takes to get from one catalog to another, step by step, and whether it can be done at all.

A plan without steps means that the IR is the same; anything else is at least a change of metadata [SCH-04]. A plan with
one `unsupported_change` is refused as a whole [SCH-05]. Types and properties are followed by name, and through
`@rename_from`:

- It asks for a rename when the accepted schema has the old name and has not carried out the same annotation yet. The
  accepted IR keeps the annotation, so planning the same source again asks for nothing.
- All renames happen at once. `a` may become `c` while a new `a` appears, and two names may be swapped [SCH-19].
- It is refused when it would lose something without saying so: its old name is unknown, two claim it, or the new name
  belongs to something that is not itself renamed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from reference.errors import BadRequest
from reference.schema.declarations import TypeKind
from reference.schema.ir import annotations_ir, constraints_ir, type_ir
from reference.schema.types import Annotation, Catalog, EdgeType, NodeType, Property

StepKind = Literal[
    "add_type",
    "rename_type",
    "add_property",
    "rename_property",
    "add_constraint",
    "update_type_metadata",
    "update_property_metadata",
    "drop_type",
    "drop_property",
    "unsupported_change",
]
REQUIRED_PROPERTY_ADDED = "OG-MF-103"
PROPERTY_TYPE_CHANGED = "OG-MF-106"


@dataclass(frozen=True)
class Step:
    """One change. `type_name` is the name after the plan, except for a type that is dropped."""

    kind: StepKind
    type_kind: TypeKind
    type_name: str
    property_name: str | None = None
    old_name: str | None = None
    new_name: str | None = None
    mode: Literal["soft", "hard"] | None = None
    property_type: Mapping[str, Any] | None = None
    constraint: Mapping[str, Any] | None = None
    annotations: Sequence[Mapping[str, Any]] | None = None
    entity: str | None = None
    reason: str | None = None
    code: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The step with the fields that it has."""
        spelled = {"old_name": "from", "new_name": "to"}
        return {spelled.get(name, name): value for name, value in vars(self).items() if value is not None}


@dataclass(frozen=True)
class MigrationPlan:
    """All steps, in an order that depends on the two catalogs only."""

    supported: bool
    steps: tuple[Step, ...]

    def to_json(self) -> dict[str, Any]:
        """The plan as `schema plan` shows it [SCH-03]."""
        return {"supported": self.supported, "steps": [each.to_json() for each in self.steps]}

    def require_supported(self) -> None:
        """Refuse a plan that cannot be carried out."""
        refused = [each for each in self.steps if each.kind == "unsupported_change"]
        if refused:
            first, more = refused[0], f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
            label = f"[{first.code}] " if first.code else ""
            raise BadRequest(
                f"{label}{first.reason}{more}",
                code="schema_change_unsupported",
                details={"steps": [each.to_json() for each in refused]},
                hint="export the graph and import it under the new schema, or change the schema in smaller steps",
            )


@dataclass(frozen=True)
class TableChanges:
    """What a plan does to tables. Renames happen at once; a key may be added that another table is renamed from.

    `rewritten` maps the new key of a table to its new properties, each with the old property that it gets its values
    from, or None for nulls; a property of the old table that no value names is dropped. A table that is renamed and
    otherwise the same is not in it.
    """

    added: list[str]
    dropped: list[str]
    renamed: dict[str, str]
    rewritten: dict[str, dict[str, str | None]]


def plan_migration(old: Catalog, new: Catalog, *, allow_data_loss: bool = False) -> MigrationPlan:
    """Plan the change from the accepted catalog to the desired one."""
    planner = _Planner("hard" if allow_data_loss else "soft")
    planner.interfaces(old, new)
    stays = planner.types("node", old.nodes, new.nodes)
    # An edge type follows its node types to their new names; that is no change of its own.
    edges = {
        name: replace(
            each, from_type=stays.get(each.from_type, each.from_type), to_type=stays.get(each.to_type, each.to_type)
        )
        for name, each in old.edges.items()
    }
    planner.types("edge", edges, new.edges)
    supported = all(each.kind != "unsupported_change" for each in planner.steps)
    return MigrationPlan(supported, tuple(planner.steps))


def table_changes(old: Catalog, new: Catalog, plan: MigrationPlan) -> TableChanges:
    """What a supported plan does to tables; changes of indexes, interfaces and metadata are not among it [SCH-09]."""
    plan.require_supported()
    changes = TableChanges([], [], {}, {})
    for step in plan.steps:
        if step.type_kind == "interface":
            continue
        table_key = f"{step.type_kind}:{step.type_name}"
        if step.kind == "add_type":
            changes.added.append(table_key)
        elif step.kind == "drop_type":
            changes.dropped.append(table_key)
        elif step.kind == "rename_type":
            changes.renamed[f"{step.type_kind}:{step.old_name}"] = table_key
        elif step.kind in ("add_property", "rename_property", "drop_property"):
            properties = new.type_of(table_key).properties
            columns = changes.rewritten.setdefault(table_key, {each.name: each.name for each in properties})
            if step.kind != "drop_property":
                columns[step.property_name or ""] = step.old_name
    return changes


Table = TypeVar("Table", NodeType, EdgeType)
Named = TypeVar("Named", NodeType, EdgeType, Property)


class _Planner:
    """Collects steps: interfaces, then nodes, then edges, by name within each."""

    def __init__(self, mode: Literal["soft", "hard"]) -> None:
        self.steps: list[Step] = []
        self._mode: Literal["soft", "hard"] = mode

    def interfaces(self, old: Catalog, new: Catalog) -> None:
        """Interfaces have no table: what they change in node types shows in the node types."""
        for name in new.interfaces:
            if name not in old.interfaces:
                self.steps.append(Step("add_type", "interface", name))
            elif old.interfaces[name] != new.interfaces[name]:
                self.steps.append(Step("update_type_metadata", "interface", name))
        for name in old.interfaces:
            if name not in new.interfaces:
                self.steps.append(Step("drop_type", "interface", name, mode=self._mode))

    def types(self, kind: TypeKind, old: Mapping[str, Table], new: Mapping[str, Table]) -> dict[str, str]:
        """Plan all node or all edge types; returns the new name of each old type that stays."""
        origins, refused = _origins(old, new)
        for name, after in new.items():
            if name in refused:
                self._unsupported(kind, name, None, f"{kind} '{name}': {refused[name]}")
                continue
            if name not in origins:
                self.steps.append(Step("add_type", kind, name))
                continue
            before, steps_before = old[origins[name]], len(self.steps)
            if origins[name] != name:
                self.steps.append(Step("rename_type", kind, name, old_name=origins[name], new_name=name))
            self._members(kind, before, after)
            renamed = origins[name] != name
            metadata = _metadata(before, renamed) != _metadata(after, renamed)
            # What no other step shows, such as other interfaces or `@index` moved into the body, still is a new IR.
            if metadata or (len(self.steps) == steps_before and before != after):
                annotations = annotations_ir(after.annotations)
                self.steps.append(Step("update_type_metadata", kind, name, annotations=annotations))
        stays = {origin: name for name, origin in origins.items()}
        for name in old:
            if name not in stays and name not in _claimed(new, refused):
                self.steps.append(Step("drop_type", kind, name, mode=self._mode))
        return stays

    def _edge(self, before: EdgeType, after: EdgeType) -> None:
        if (before.from_type, before.to_type) != (after.from_type, after.to_type):
            self._unsupported("edge", after.name, None, f"edge '{after.name}' would connect other types")
        limits = (before.cardinality_min, before.cardinality_max)
        if limits != (after.cardinality_min, after.cardinality_max):
            self._unsupported("edge", after.name, None, f"edge '{after.name}' would allow another number of edges")

    def _members(self, kind: TypeKind, before: NodeType | EdgeType, after: NodeType | EdgeType) -> None:
        owner = after.name
        if isinstance(before, EdgeType) and isinstance(after, EdgeType):
            self._edge(before, after)
        old = {each.name: each for each in before.properties}
        new = {each.name: each for each in after.properties}
        origins, refused = _origins(old, new)
        for name, column in new.items():
            where = f"'{owner}.{name}'"
            if name in refused:
                self._unsupported(kind, owner, name, f"{where}: {refused[name]}")
            elif name not in origins:
                self._added(kind, owner, column)
            else:
                self._kept(kind, owner, old[origins[name]], column)
        for name in old:
            if name not in origins.values() and name not in _claimed(new, refused):
                self.steps.append(Step("drop_property", kind, owner, name, mode=self._mode))
        self._constraints(kind, before, after, {origin: name for name, origin in origins.items()})

    def _added(self, kind: TypeKind, owner: str, column: Property) -> None:
        if column.type.nullable:
            step = Step("add_property", kind, owner, column.name, property_type=type_ir(column.type))
            self.steps.append(step)
            return
        what = f"'{owner}.{column.name}' is new and required, and existing rows have no value for it"
        self._unsupported(kind, owner, column.name, what, REQUIRED_PROPERTY_ADDED)

    def _kept(self, kind: TypeKind, owner: str, before: Property, after: Property) -> None:
        renamed = before.name != after.name
        if renamed:
            step = Step("rename_property", kind, owner, after.name, old_name=before.name, new_name=after.name)
            self.steps.append(step)
        if before.type != after.type:
            what = f"'{owner}.{after.name}' would change from {before.type} to {after.type}"
            self._unsupported(kind, owner, after.name, what, PROPERTY_TYPE_CHANGED)
        if _metadata(before, renamed) != _metadata(after, renamed):
            annotations = annotations_ir(after.annotations)
            step = Step("update_property_metadata", kind, owner, after.name, annotations=annotations)
            self.steps.append(step)

    def _constraints(
        self, kind: TypeKind, before: NodeType | EdgeType, after: NodeType | EdgeType, names: Mapping[str, str]
    ) -> None:
        had = [_renamed(each, names) for each in constraints_ir(before)]
        has = constraints_ir(after)
        for each in constraints_ir(before):
            columns = [names.get(column, column) for column in sorted(each.get("Key", ()))]
            if columns != sorted(columns):
                what = f"the columns of the key of '{after.name}' would change places, and with them every id"
                self._unsupported(kind, after.name, None, what)
        for each in had:
            if each not in has:
                self._unsupported(kind, after.name, None, f"'{after.name}' would lose the constraint {_shown(each)}")
        for position, each in enumerate(has):
            if each in had or each in has[:position]:
                continue
            if "Index" in each:
                self.steps.append(Step("add_constraint", kind, after.name, constraint=each))
            else:
                what = f"'{after.name}' would get the constraint {_shown(each)}, which no existing row was held to"
                self._unsupported(kind, after.name, None, what)

    def _unsupported(
        self, kind: TypeKind, owner: str, column: str | None, reason: str, code: str | None = None
    ) -> None:
        entity = f"{kind}:{owner}" if column is None else f"{kind}:{owner}.{column}"
        self.steps.append(
            Step("unsupported_change", kind, owner, column, entity=entity, reason=reason, code=code),
        )


def _rename_source(item: NodeType | EdgeType | Property | None) -> str | None:
    annotations: tuple[Annotation, ...] = () if item is None else item.annotations
    return next((each.value for each in annotations if each.name == "rename_from"), None)


def _origins(old: Mapping[str, Named], new: Mapping[str, Named]) -> tuple[dict[str, str], dict[str, str]]:
    """Where each new name comes from, and why some renames are refused. A name in neither is new."""
    wanted: dict[str, str] = {}
    missing: dict[str, str] = {}
    refused: dict[str, str] = {}
    for name, item in new.items():
        source = _rename_source(item)
        if source is None or source == name or source == _rename_source(old.get(name)):
            continue
        if source in old:
            wanted[name] = source
        else:
            missing[name] = f"@rename_from names '{source}', which the accepted schema does not have"
    sources = list(wanted.values())
    # A name that is accepted and stays where it is was renamed earlier: its annotation has been carried out.
    refused |= {name: why for name, why in missing.items() if name not in old or name in sources}
    for name, source in list(wanted.items()):
        if sources.count(source) > 1:
            refused[name] = f"@rename_from names '{source}', which another one claims too"
        elif name in old and name not in sources:
            refused[name] = f"@rename_from would replace the accepted '{name}', which is not renamed itself"
    origins = {name: source for name, source in wanted.items() if name not in refused}
    taken = set(origins.values())
    origins |= {name: name for name in new if name in old and name not in taken and name not in origins | refused}
    return origins, refused


def _claimed(new: Mapping[str, Named], refused: Mapping[str, str]) -> set[str | None]:
    """What refused renames are about: to say "drop" of it as well would be one mistake told twice."""
    return {*refused, *(_rename_source(new[name]) for name in refused)}


def _metadata(item: NodeType | EdgeType | Property, renamed: bool) -> list[Annotation]:
    """Annotations that say nothing which another step shows."""
    shown_elsewhere = {"key", "unique", "index"} | ({"rename_from"} if renamed else set())
    return [each for each in item.annotations if each.name not in shown_elsewhere]


def _renamed(constraint: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    [(kind, body)] = constraint.items()
    if isinstance(body, list):
        return {kind: sorted(names.get(each, each) for each in body)}
    return {kind: {**body, "property": names.get(body["property"], body["property"])}}


def _shown(constraint: Mapping[str, Any]) -> str:
    [(kind, body)] = constraint.items()
    columns = body if isinstance(body, list) else [body["property"]]
    return f"@{kind.lower()}({', '.join(columns)})"
