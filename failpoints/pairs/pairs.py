"""The pairs: two lanes of steps on one graph, each done by a process of its own, at the same time.

A lane is one step, or a few that its process does one after the other. Whatever their requests meet in, the graph must
end as if one lane had gone first. Pairs say nothing of engines: they are values that a trace can hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from failpoints.steps import Step
from failpoints.writers import (
    BRANCH,
    BRANCHES,
    CREATE,
    ON_BRANCH,
    ON_MAIN,
    PEOPLE,
    SCHEMA,
    WRITERS,
    delete,
    insert,
    insert_edge,
    load,
    mutate,
    update,
)

Side = Literal["first", "second"]
SIDES: Final[tuple[Side, Side]] = ("first", "second")
PUBLISH: Final = ("manifest version", 1)
# Steps that remove objects which somebody may be about to read.
REMOVING: Final = ("cleanup", "branch_delete")
# Steps that a lane begins without an open graph: they open one themselves, or there is none yet.
WITHOUT_A_HANDLE: Final = ("open", "init")


@dataclass(frozen=True)
class Pair:
    """Two lanes and the graph that they meet on.

    `crash` are steps that somebody died in each, on tables of their own, after both lanes had the graph open, and
    `crash_before` the write of theirs that never came, by its role and number: the publish, if nothing else is said.
    `both` says that neither lane may be refused. `follow` is done when the two are over, by somebody else, and must
    mean what it means then. `known` says that both lanes have read all of the graph with the handles that they go on
    with. `needs` are the operations that an engine must have.
    """

    name: str
    sentence: str
    setup: tuple[Step, ...]
    first: tuple[Step, ...]
    second: tuple[Step, ...]
    crash: tuple[Step, ...] = ()
    crash_before: tuple[str, int] = PUBLISH
    both: bool = False
    follow: tuple[Step, ...] = ()
    known: bool = False
    schema: str = SCHEMA
    needs: tuple[str, ...] = ()

    def lane(self, side: Side) -> tuple[Step, ...]:
        return self.first if side == "first" else self.second

    @property
    def begins_with_a_graph(self) -> bool:
        return bool(self.first[0]["do"] != "init")

    @property
    def removes(self) -> bool:
        """Whether a lane may take away what the other one reads."""
        return any(step["do"] in REMOVING for side in SIDES for step in self.lane(side))

    @property
    def both_ids(self) -> tuple[str, ...]:
        """Why neither lane may be refused: writers of different tables both commit, and two that open both succeed."""
        return ("REC-19",) if self.first[0]["do"] == self.second[0]["do"] == "open" else ("PUB-08",)

    def as_json(self) -> dict[str, Any]:
        """The pair as a trace holds it."""
        body: dict[str, Any] = {
            "name": self.name,
            "sentence": self.sentence,
            "schema": self.schema,
            "setup": [dict(step) for step in self.setup],
            "first": [dict(step) for step in self.first],
            "second": [dict(step) for step in self.second],
            "both": self.both,
            "follow": [dict(step) for step in self.follow],
        }
        if self.known:
            body["known"] = True
        if self.crash:
            steps = [dict(step) for step in self.crash]
            body |= {"crash": steps if len(steps) > 1 else steps[0], "crash_before": list(self.crash_before)}
        return body

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Pair:
        crash = body.get("crash", ())
        return cls(
            name=body["name"],
            sentence=body["sentence"],
            setup=tuple(body["setup"]),
            first=tuple(body["first"]),
            second=tuple(body["second"]),
            crash=(crash,) if isinstance(crash, Mapping) else tuple(crash),
            crash_before=tuple(body.get("crash_before", PUBLISH)),
            both=body["both"],
            follow=tuple(body["follow"]),
            known=bool(body.get("known", False)),
            schema=body["schema"],
        )


class UnknownPair(ValueError):
    """A name that no pair has."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return f"there is no pair '{self.name}'; there are all, {', '.join(PAIRS)}"


def pairs_called(names: Sequence[str]) -> list[Pair]:
    """The pairs that names stand for, each once, in their own order."""
    for name in names:
        if name != "all" and name not in PAIRS:
            raise UnknownPair(name)
    return [pair for pair in PAIRS.values() if "all" in names or pair.name in names]


def _pair(
    name: str,
    sentence: str,
    first: Step | Sequence[Step],
    second: Step | Sequence[Step],
    *setup: Step,
    crash: Step | Sequence[Step] = (),
    crash_before: tuple[str, int] = PUBLISH,
    both: bool = False,
    follow: Sequence[Step] = (),
    known: bool = False,
) -> Pair:
    lanes = _lane(first, "first"), _lane(second, "second")
    dead = (crash,) if isinstance(crash, Mapping) else tuple(crash)
    steps = (*setup, *lanes[0], *lanes[1], *follow, *dead)
    operations = {str(step["do"]) for step in steps}
    needs = tuple(sorted(operations | ({"branch_list"} if operations & set(BRANCHES) else set())))
    before = (PEOPLE, *setup) if lanes[0][0]["do"] != "init" else ()
    return Pair(name, sentence, before, *lanes, dead, crash_before, both, tuple(follow), known, needs=needs)


def _lane(steps: Step | Sequence[Step], side: Side) -> tuple[Step, ...]:
    each = [steps] if isinstance(steps, Mapping) else steps
    return tuple({**step, "actor": side} if step["do"] in ("load", "mutate", "merge") else step for step in each)


def _person(name: str, /, **data: Any) -> dict[str, Any]:
    return {"type": "Person", "data": {"name": name, **data}}


_DAN: Final = mutate(insert("Person", name="dan", age=4))
_ELI: Final = mutate(insert("Person", name="eli", age=5))
_DYNO: Final = mutate(insert("Company", name="dyno"))
_TWO_TABLES: Final = mutate(insert("Person", name="dan"), insert("Company", name="dyno"))
_TWO_TABLES_TOO: Final = mutate(insert("Company", name="echo"), insert("Person", name="eli"))
_TWO_DEAD: Final = (_DAN, _DYNO)
_ANNS_AGE: Final = mutate(update("Person", "ann", age=77))
_ANNS_EMAIL: Final = mutate(update("Person", "ann", email="other@x"))
# Nobody has an edge to gus: his end changes no other table than his own.
_GUS: Final = mutate(insert("Person", name="gus"))
_NO_GUS: Final = mutate(delete("Person", "gus"))
_EDGE_TO_GUS: Final = mutate(insert_edge("Knows", "ann", "gus", id="k7"))
_SMALL_WRITES: Final = WRITERS["optimize"].setup[1:]
_OPTIMIZE: Final[Step] = {"do": "optimize"}
_DELETE: Final[Step] = {"do": "branch_delete", "name": BRANCH}
_MERGE: Final[Step] = {"do": "merge", "source": BRANCH, "target": "main"}
_MERGE_BACK: Final[Step] = {"do": "merge", "source": "main", "target": BRANCH}
_ADD: Final = WRITERS["schema-add"].step
_RENAME: Final = WRITERS["schema-rename"].step
_INIT: Final[Step] = {"do": "init", "schema": SCHEMA}
_INIT_LARGER: Final[Step] = {"do": "init", "schema": _ADD["source"]}
_OPEN: Final[Step] = {"do": "open"}


def _on(branch: str, step: Step) -> Step:
    return {**step, "branch": branch}


PAIRS: Final[Mapping[str, Pair]] = {
    pair.name: pair
    for pair in (
        _pair(
            "insert-insert-tables",
            "new rows in two tables: both commit",
            _DAN,
            _DYNO,
            both=True,
        ),
        _pair("insert-insert-keys", "two new rows in one table", _DAN, _ELI),
        _pair(
            "insert-insert-crossed", "new rows in the same two tables, in either order", _TWO_TABLES, _TWO_TABLES_TOO
        ),
        _pair(
            "append-append-key",
            "one new key, twice: one wins",
            load(_person("dan", age=1), mode="append"),
            load(_person("dan", age=2), mode="append"),
        ),
        _pair(
            "insert-insert-key",
            "one new key, twice, by writes that would each replace the other's row: it is there once",
            _DAN,
            mutate(insert("Person", name="dan", age=9)),
        ),
        _pair(
            "edge-endpoint",
            "a new edge, and the end of the node that it leads to",
            _EDGE_TO_GUS,
            _NO_GUS,
            _GUS,
        ),
        _pair(
            "edge-cascade",
            "a new edge, and the end of its node together with other edges",
            mutate(insert_edge("Knows", "ann", "cat", id="k7")),
            mutate(delete("Person", "cat")),
        ),
        _pair(
            "edge-overwrite",
            "a new edge, and a table replaced by one without the node that it leads to",
            _EDGE_TO_GUS,
            WRITERS["load-overwrite"].step,
            _GUS,
        ),
        _pair("update-update-row", "two properties of one row", _ANNS_AGE, _ANNS_EMAIL),
        _pair("update-update-rows", "two rows of one table", _ANNS_AGE, mutate(update("Person", "bob", age=78))),
        _pair("delete-update-row", "one row deleted and changed", mutate(delete("Person", "ann")), _ANNS_AGE),
        _pair("insert-optimize", "a new row, and a compaction of its table", _DAN, _OPTIMIZE, *_SMALL_WRITES),
        _pair("update-optimize", "a changed row, and a compaction of its table", _ANNS_AGE, _OPTIMIZE, *_SMALL_WRITES),
        _pair(
            "insert-cleanup",
            "a new row, and the end of old versions",
            _TWO_TABLES,
            {"do": "cleanup", "keep_versions": 1},
            *_SMALL_WRITES,
        ),
        _pair("insert-indices", "a new row, and the indexes of its table", _DAN, {"do": "ensure_indices"}),
        _pair("write-branch-create", "a write to main, and a branch made of it", _TWO_TABLES, CREATE),
        _pair("branch-write-delete", "a write to a branch, and its end", _on(BRANCH, _DAN), _DELETE, CREATE, ON_BRANCH),
        _pair(
            "branch-write-recreate",
            "a write to a branch that is deleted, made anew and written",
            _on(BRANCH, _DAN),
            [_DELETE, CREATE, _on(BRANCH, _ELI)],
            CREATE,
            ON_BRANCH,
        ),
        _pair(
            "branch-write-recreate-known",
            "a write to a branch that its writer has read, and that is deleted, made anew and written",
            _on(BRANCH, _DAN),
            [_DELETE, CREATE, _on(BRANCH, _ELI)],
            CREATE,
            ON_BRANCH,
            known=True,
        ),
        _pair(
            "first-write-cleanup",
            "a first write to a branch, and the end of forks that nobody needs",
            _on(BRANCH, _TWO_TABLES),
            {"do": "cleanup", "keep_versions": 1},
            CREATE,
        ),
        _pair("first-write-first-write", "two first writes to a branch", _on(BRANCH, _DAN), _on(BRANCH, _ELI), CREATE),
        _pair(
            "merge-write-target",
            "a merge, and a write to its target that it may conflict with",
            _MERGE,
            _ANNS_EMAIL,
            CREATE,
            ON_BRANCH,
            ON_MAIN,
        ),
        _pair(
            "merge-write-other",
            "a merge, and a write to a table of its target that it does not touch",
            _MERGE,
            mutate(update("Company", "acme", size=9)),
            CREATE,
            _on(BRANCH, _ELI),
            ON_MAIN,
        ),
        _pair(
            "merge-write-source",
            "a merge, and a write to its source, which a second merge then takes",
            _MERGE,
            _on(BRANCH, mutate(update("Person", "eve", age=6), insert("Person", name="fay"))),
            CREATE,
            ON_BRANCH,
            ON_MAIN,
            follow=(_MERGE,),
        ),
        _pair(
            "merge-endpoint",
            "a merge that brings an edge, and the end of the node that it leads to",
            _MERGE,
            _NO_GUS,
            _GUS,
            CREATE,
            {**_EDGE_TO_GUS, "branch": BRANCH},
        ),
        _pair("merge-merge", "one merge, twice", _MERGE, _MERGE, CREATE, ON_BRANCH, ON_MAIN),
        _pair("merge-merge-crosswise", "two branches merged into each other", _MERGE, _MERGE_BACK, CREATE, ON_BRANCH),
        _pair("schema-write", "another schema, and a write under the old one", _ADD, _TWO_TABLES),
        _pair("schema-branch-create", "another schema, and a new branch", _ADD, CREATE),
        _pair("schema-schema", "two other schemas", _ADD, _RENAME),
        _pair("init-init", "two graphs at one address: one wins", _INIT, _INIT_LARGER),
        _pair("schema-open", "another schema, and one that recovers what it finds", _ADD, _OPEN),
        _pair("write-open", "a write, and one that recovers what it finds", _TWO_TABLES, _OPEN),
        _pair("write-refresh", "a write, and one that looks for what is new", _TWO_TABLES, {"do": "refresh"}),
        _pair("open-open", "two that recover one dead writer", _OPEN, _OPEN, crash=_TWO_TABLES, both=True),
        _pair(
            "open-open-back",
            "two that recover a writer that died between its tables",
            _OPEN,
            _OPEN,
            crash=_TWO_TABLES,
            crash_before=("table version", 2),
            both=True,
        ),
        _pair(
            "open-open-schema",
            "two that recover a schema apply that died before its files were in place",
            _OPEN,
            _OPEN,
            crash=_ADD,
            crash_before=("schema file", 4),
            both=True,
        ),
        _pair("open-open-two", "two that recover two dead writers", _OPEN, _OPEN, crash=_TWO_DEAD, both=True),
        _pair(
            "open-open-two-forks",
            "two that recover two dead first writers of a branch",
            _OPEN,
            _OPEN,
            CREATE,
            crash=[_on(BRANCH, step) for step in _TWO_DEAD],
            both=True,
        ),
        _pair("open-write", "one that recovers a dead writer, and one that writes", _OPEN, _ELI, crash=_TWO_TABLES),
        _pair(
            "open-write-two", "one that recovers two dead writers, and one that writes", _OPEN, _ELI, crash=_TWO_DEAD
        ),
        _pair(
            "open-write-back",
            "one that takes a dead writer's move back, and one that writes another table",
            _OPEN,
            _ELI,
            crash=mutate(insert("Company", name="dyno"), insert_edge("Knows", "ann", "cat", id="k7")),
            crash_before=("table version", 2),
        ),
        _pair(
            "open-write-idle",
            "one that finds a writer that died before it moved anything, and one that writes its table",
            _OPEN,
            _ELI,
            crash=_DAN,
            crash_before=("table version", 1),
        ),
        _pair(
            "open-branch-delete",
            "one that recovers a dead writer of a branch, and the end of that branch",
            _OPEN,
            _DELETE,
            CREATE,
            ON_BRANCH,
            crash=_on(BRANCH, _TWO_TABLES),
        ),
        _pair(
            "open-optimize",
            "one that recovers a dead writer, and a compaction of its table",
            _OPEN,
            _OPTIMIZE,
            *_SMALL_WRITES,
            crash=_DAN,
        ),
        _pair(
            "open-cleanup",
            "one that takes a dead writer's move back, and the end of old versions",
            _OPEN,
            {"do": "cleanup", "keep_versions": 1},
            *_SMALL_WRITES,
            crash=_TWO_TABLES,
            crash_before=("table version", 2),
        ),
        _pair("overwrite-insert", "a table replaced, and a new row in it", WRITERS["load-overwrite"].step, _DAN),
        _pair(
            "load-load-new-branch",
            "two loads that make the same branch",
            load(_person("dan", age=1), branch=BRANCH, base="main"),
            load(_person("eli", age=2), branch=BRANCH, base="main"),
        ),
    )
}
