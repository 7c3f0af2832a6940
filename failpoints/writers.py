"""The writers: one way to change a graph each, with the graph that it is done to.

A fault is tried on every one of them. Each is small, touches more than one table where it can, and leaves the graph in
a state that cannot be mistaken for the one before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from conformance.model.schema import Schema, Type
from failpoints.steps import Step

SCHEMA: Final = """
node Person {
  name: String @key
  age: I32? @index
  email: String? @unique
}
node Company {
  name: String @key
  size: I32?
}
edge Knows: Person -> Person {
  since: I32?
}
edge WorksAt: Person -> Company
"""
_ADDED: Final = SCHEMA.replace("  email:", "  city: String?\n  email:") + "node Place {\n  code: String @key\n}\n"
_RENAMED: Final = (
    SCHEMA.replace("  age: I32? @index", '  years: I32? @index @rename_from("age")')
    .replace("  size: I32?", '  staff: I32? @rename_from("size")')
    .replace("node Company {", 'node Firm @rename_from("Company") {')
    .replace("-> Company", "-> Firm")
)
_DROPPED: Final = SCHEMA.replace("  size: I32?\n", "").replace("edge WorksAt: Person -> Company\n", "")


def _node(type_name: str, /, **data: Any) -> dict[str, Any]:
    return {"type": type_name, "data": data}


def _edge(type_name: str, source: str, target: str, /, **data: Any) -> dict[str, Any]:
    return {"edge": type_name, "from": source, "to": target, "data": data}


def insert(type_name: str, /, **data: Any) -> dict[str, Any]:
    return {"op": "insert", "type": type_name, "data": data}


def insert_edge(type_name: str, source: str, target: str, /, **data: Any) -> dict[str, Any]:
    return {"op": "insert", "edge": type_name, "from": source, "to": target, "data": data}


def named(name: str) -> dict[str, Any]:
    return {"property": "name", "op": "eq", "value": name}


def update(type_name: str, name: str, /, **data: Any) -> dict[str, Any]:
    return {"op": "update", "type": type_name, "where": named(name), "set": data}


def delete(type_name: str, name: str) -> dict[str, Any]:
    return {"op": "delete", "type": type_name, "where": named(name)}


def load(*records: Mapping[str, Any], mode: str = "merge", **args: Any) -> Step:
    return {"do": "load", "records": [dict(each) for each in records], "mode": mode, **args}


def mutate(*statements: Mapping[str, Any], **args: Any) -> Step:
    return {"do": "mutate", "statements": [dict(each) for each in statements], **args}


PEOPLE: Final = load(
    _node("Person", name="ann", age=30, email="ann@x"),
    _node("Person", name="bob", age=31),
    _node("Person", name="cat"),
    _node("Company", name="acme", size=3),
    _edge("Knows", "ann", "bob", id="k1", since=2020),
    _edge("Knows", "bob", "cat", id="k2"),
    _edge("WorksAt", "bob", "acme", id="w1"),
)
BRANCH: Final = "feature"
CREATE: Final[Step] = {"do": "branch_create", "name": BRANCH, "source": "main"}
ON_BRANCH: Final = mutate(
    insert("Person", name="eve", age=5), update("Person", "ann", age=29), insert("Company", name="bolt"), branch=BRANCH
)
# And an edge that goes away again with `ON_BRANCH_TOO`: its table has moved, and nothing in it has changed.
ON_BRANCH_AND_BACK: Final = mutate(*ON_BRANCH["statements"], insert_edge("WorksAt", "cat", "acme"), branch=BRANCH)
ON_BRANCH_TOO: Final = mutate(delete("Person", "cat"), branch=BRANCH)
ON_MAIN: Final = mutate(insert("Person", name="max"), update("Company", "acme", size=4))
ACTOR: Final = "writer"


@dataclass(frozen=True)
class Writer:
    """One way to change a graph: the steps that lead to it, and the step itself. `init` has neither graph nor steps."""

    name: str
    sentence: str
    setup: tuple[Step, ...]
    step: Step
    needs: tuple[str, ...] = ()


def _writer(name: str, sentence: str, step: Step, *setup: Step, needs: Sequence[str] = ()) -> Writer:
    return Writer(name, sentence, (PEOPLE, *setup), step, tuple(dict.fromkeys((*needs, step["do"]))))


_NEW_PEOPLE: Final = (
    _node("Person", name="dan", age=1, email="dan@x"),
    _node("Company", name="dyno"),
    _edge("Knows", "dan", "ann", id="k9"),
)
_SMALL_WRITES: Final = tuple(
    mutate(insert("Person", name=f"p{number}", age=number), insert("Company", name=f"c{number}")) for number in range(3)
)
BRANCHES: Final = ("branch_create", "branch_list")

WRITERS: Final[Mapping[str, Writer]] = {
    writer.name: writer
    for writer in (
        Writer("init", "a new graph", (), {"do": "init"}, ("init",)),
        _writer("load-append", "new rows for three tables", load(*_NEW_PEOPLE, mode="append", actor=ACTOR)),
        _writer(
            "load-merge",
            "new rows and changed ones for three tables",
            load(*_NEW_PEOPLE, _node("Person", name="bob", age=50), mode="merge", actor=ACTOR),
        ),
        _writer(
            "load-overwrite",
            "two tables with other rows in place of theirs",
            load(
                *(_node("Person", name=name, age=9) for name in ("ann", "bob", "cat", "zoe")),
                _node("Company", name="acme", size=8),
                mode="overwrite",
                actor=ACTOR,
            ),
        ),
        _writer(
            "insert",
            "a node of each of two types, and an edge between them",
            mutate(
                insert("Person", name="dan", age=4),
                insert("Company", name="dyno"),
                insert_edge("WorksAt", "dan", "dyno"),
                actor=ACTOR,
            ),
        ),
        _writer(
            "update",
            "a row of each of two tables",
            mutate(update("Person", "ann", age=77), update("Company", "acme", size=5), actor=ACTOR),
        ),
        _writer(
            "delete", "a node, and by cascade its edges in two tables", mutate(delete("Person", "bob"), actor=ACTOR)
        ),
        _writer("branch-create", "a branch", CREATE, needs=BRANCHES),
        _writer(
            "first-write",
            "the first write to a branch, in two tables",
            mutate(insert("Person", name="dan"), insert("Company", name="dyno"), branch=BRANCH, actor=ACTOR),
            CREATE,
            needs=BRANCHES,
        ),
        _writer(
            "branch-write",
            "a further write to a branch",
            mutate(insert("Person", name="dan"), insert_edge("Knows", "dan", "eve"), branch=BRANCH, actor=ACTOR),
            CREATE,
            ON_BRANCH,
            needs=BRANCHES,
        ),
        _writer(
            "load-new-branch",
            "a load that makes its branch",
            load(*_NEW_PEOPLE, branch=BRANCH, base="main", actor=ACTOR),
            needs=BRANCHES,
        ),
        _writer(
            "branch-delete",
            "the end of a branch that has tables of its own",
            {"do": "branch_delete", "name": BRANCH},
            CREATE,
            ON_BRANCH,
            needs=BRANCHES,
        ),
        _writer(
            "merge-fast-forward",
            "a branch merged into main, which has not moved",
            {"do": "merge", "source": BRANCH, "target": "main", "actor": ACTOR},
            CREATE,
            ON_BRANCH_AND_BACK,
            ON_BRANCH_TOO,
            needs=BRANCHES,
        ),
        _writer(
            "merge",
            "a branch merged into main, which has moved too",
            {"do": "merge", "source": BRANCH, "target": "main", "actor": ACTOR},
            CREATE,
            ON_BRANCH_AND_BACK,
            ON_BRANCH_TOO,
            ON_MAIN,
            needs=BRANCHES,
        ),
        _writer(
            "merge-into-branch",
            "main merged into a branch, and both have moved",
            {"do": "merge", "source": "main", "target": BRANCH, "actor": ACTOR},
            CREATE,
            ON_BRANCH,
            ON_MAIN,
            needs=BRANCHES,
        ),
        _writer("schema-add", "a property and a type more", {"do": "schema_apply", "source": _ADDED}),
        _writer(
            "schema-rename",
            "properties and a type renamed, and a property of that type",
            {"do": "schema_apply", "source": _RENAMED},
        ),
        _writer(
            "schema-drop",
            "a property and a type fewer, with their data",
            {"do": "schema_apply", "source": _DROPPED, "allow_data_loss": True},
        ),
        _writer("ensure-indices", "the indexes of all tables", {"do": "ensure_indices"}, *_SMALL_WRITES[:1]),
        _writer("optimize", "tables of several fragments compacted", {"do": "optimize"}, *_SMALL_WRITES),
        _writer("cleanup", "old versions removed", {"do": "cleanup", "keep_versions": 1}, *_SMALL_WRITES),
    )
}
# What may stand for several writers on a command line.
GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "all": tuple(WRITERS),
    "load": ("load-append", "load-merge", "load-overwrite", "load-new-branch"),
    "mutate": ("insert", "update", "delete"),
    "branches": ("branch-create", "first-write", "branch-write", "branch-delete"),
    "merges": ("merge-fast-forward", "merge", "merge-into-branch"),
    "schema-apply": ("schema-add", "schema-rename", "schema-drop"),
    "maintenance": ("ensure-indices", "optimize", "cleanup"),
}


class UnknownWriter(ValueError):
    """A name that no writer has."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        known = ", ".join(WRITERS)
        return f"there is no writer '{self.name}'; there are {known}; and for several of them: {', '.join(GROUPS)}"


def writers_called(names: Sequence[str]) -> list[Writer]:
    """The writers that names stand for, each once, in their own order."""
    chosen: set[str] = set()
    for name in names:
        key = name.replace("_", "-")
        if name in GROUPS:
            chosen.update(GROUPS[name])
        elif key in GROUPS or key in WRITERS:
            chosen.update(GROUPS.get(key, (key,)))
        else:
            raise UnknownWriter(name)
    return [writer for writer in WRITERS.values() if writer.name in chosen]


def families(writers: Sequence[Writer]) -> list[tuple[str, ...]]:
    """Writers whose recoveries are alike: those of one group, and the rest each for itself."""
    groups = [names for name, names in GROUPS.items() if name != "all"]
    grouped = [name for names in groups for name in names]
    alone = [(writer.name,) for writer in writers if writer.name not in grouped]
    chosen = {writer.name for writer in writers}
    shared = [tuple(name for name in names if name in chosen) for names in groups]
    return [*alone, *(names for names in shared if names)]


def follow_up(number: int, branch: str, schema: Schema | None = None) -> Step:
    """A write that every one of these graphs must take, whatever its schema has become: a row in each table.

    Without a schema it is one to the tables that all of these graphs have.
    """
    name = f"after-{number}"
    changed = update("Person", "ann", email=f"{name}@x")
    if schema is None:
        return mutate(insert("Person", name=name), insert_edge("Knows", name, name), changed, branch=branch)
    types = list(schema.types.values())
    nodes = [insert(each.name, **_values(each, name)) for each in types if each.kind == "node"]
    edges = [insert_edge(each.name, name, name, **_values(each, name)) for each in types if each.kind == "edge"]
    return mutate(*nodes, *edges, changed, branch=branch)


def _values(type_: Type, name: str) -> dict[str, Any]:
    """What a row of a type must have: its key, and what may not be null."""
    needed = [each for each in type_.properties if each.name in type_.key or not each.nullable]
    return {each.name: name if each.scalar == "String" else 1 for each in needed}
