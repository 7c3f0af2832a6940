"""The state machine: makes up steps, one after the other, and hands each to the player.

Hypothesis chooses; the seed decides what it chooses. Nothing that an engine decides (ids, times, versions) takes part
in a choice, so that a seed gives the same sequence on every engine and every store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, cast
from unittest import mock

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture.providers import HypothesisProvider
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from conformance.model import Model
from conformance.sequences import vocabulary as words
from conformance.sequences.player import MAIN, Player, Step

handles = st.integers(0, 2)
depths = st.integers(0, 6)
tenths = st.integers(0, 9)


@dataclass(frozen=True)
class _Meant:
    model: Model


@dataclass(frozen=True)
class _Spectator:
    """What the choices of a sequence look at that nobody plays."""

    graph: _Meant
    schema: str = ""

    def youngest_first(self) -> list[str]:
        return []


class SequenceMachine(RuleBasedStateMachine):
    """One graph and a random history of it, from a first load and a first branch on."""

    start: ClassVar[Callable[[], Player]]
    latest: ClassVar[Player | None] = None
    players: ClassVar[list[Player]] = []
    # Hypothesis begins with the simplest of all sequences, which is the same for every seed: nobody plays it.
    is_simplest: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self.schema_number = -1
        self.is_played = not type(self).is_simplest
        type(self).is_simplest = False
        if not self.is_played:
            self.player = cast(Player, _Spectator(_Meant(Model.from_source(words.BASE))))
            return
        self.player = type(self).start()
        type(self).latest = self.player
        type(self).players = [*type(self).players, self.player]
        self.play("load", mode="merge", branch=MAIN, records=list(words.FIRST_RECORDS))
        self.play("branch_create", name=words.BRANCHES[0], source=MAIN)
        self.play("mutate", branch=words.BRANCHES[0], statements=[words.FIRST_CHANGE])

    def play(self, do: str, **args: Any) -> None:
        if self.is_played:
            step: Step = {"do": do, **args}
            self.player.play(step)

    # -- choices: mostly what is there, and now and then what is not ---------------------------------------------------

    def branch_for(self, data: st.DataObject) -> str:
        there = self.player.graph.model.branch_list()
        return data.draw(words.branches if data.draw(tenths) == 9 else st.sampled_from(there))

    def key_for(self, data: st.DataObject, branch: str, type_name: str = "Person") -> str:
        model = self.player.graph.model
        there = sorted(model.state(branch).get(f"node:{type_name}", {})) if branch in model.branch_list() else []
        return data.draw(st.sampled_from(there) if there and data.draw(tenths) < 8 else words.keys)

    # -- rows ----------------------------------------------------------------------------------------------------------

    @rule(handle=handles, mode=st.sampled_from(["merge", "merge", "append", "overwrite"]),
          actor=st.sampled_from(words.ACTORS), data=st.data())  # fmt: skip
    def load(self, handle: int, mode: str, actor: str | None, data: st.DataObject) -> None:
        branch = self.branch_for(data)
        records = data.draw(words.nodes())
        records += self.edges_for(data, branch, [each["data"]["name"] for each in records if each["type"] == "Person"])
        self.play("load", handle=handle, mode=mode, branch=branch, records=records, actor=actor)

    @rule(handle=handles, branch=words.branches, records=words.nodes(), data=st.data())
    def load_into_a_new_branch(self, handle: int, branch: str, records: list[Any], data: st.DataObject) -> None:
        base = self.branch_for(data)
        self.play("load", handle=handle, mode="merge", branch=branch, base=base, records=records)

    def edges_for(self, data: st.DataObject, branch: str, new: list[str]) -> list[dict[str, Any]]:
        found = []
        for edge_id in data.draw(st.lists(st.sampled_from(words.EDGE_IDS), max_size=2, unique=True)):
            ends = [
                data.draw(st.sampled_from(new)) if new and data.draw(tenths) < 5 else self.key_for(data, branch)
                for _ in ("from", "to")
            ]
            found.append({"edge": "Knows", "from": ends[0], "to": ends[1], "data": {"id": edge_id}})
        return found

    @rule(handle=handles, person=words.person_data(), data=st.data())
    def insert(self, handle: int, person: dict[str, Any], data: st.DataObject) -> None:
        branch = self.branch_for(data)
        statements = [
            {"op": "insert", "type": "Person", "data": {"name": self.key_for(data, branch), **person}},
            {"op": "insert", "type": "Pet", "data": {"name": data.draw(words.keys)}},
        ]
        self.play("mutate", handle=handle, branch=branch, statements=statements)

    @rule(handle=handles, kind=st.sampled_from(["Knows", "Owns"]), since=words.good_ages, data=st.data())
    def connect(self, handle: int, kind: str, since: int | None, data: st.DataObject) -> None:
        branch = self.branch_for(data)
        tail = self.key_for(data, branch)
        head = self.key_for(data, branch, "Pet" if kind == "Owns" else "Person")
        properties = {"since": since} if kind == "Knows" else {}
        statement = {"op": "insert", "edge": kind, "from": tail, "to": head, "data": properties}
        self.play("mutate", handle=handle, branch=branch, statements=[statement])

    @rule(handle=handles, values=words.person_data(), data=st.data())
    def update(self, handle: int, values: dict[str, Any], data: st.DataObject) -> None:
        branch = self.branch_for(data)
        where = data.draw(words.predicates(self.key_for(data, branch)))
        statement = {"op": "update", "type": "Person", "where": where, "set": values or {"mood": None}}
        self.play("mutate", handle=handle, branch=branch, statements=[statement])

    @rule(handle=handles, data=st.data())
    def delete(self, handle: int, data: st.DataObject) -> None:
        branch = self.branch_for(data)
        where = data.draw(words.predicates(self.key_for(data, branch)))
        statement = {"op": "delete", "type": "Person", "where": where}
        self.play("mutate", handle=handle, branch=branch, statements=[statement])

    @rule(handle=handles, do=st.sampled_from(["load", "insert", "update", "update", "delete"]),
          values=words.gauge_data(), data=st.data())  # fmt: skip
    def measure(self, handle: int, do: str, values: dict[str, Any], data: st.DataObject) -> None:
        """Rows with a value of every kind, on every surface that takes one."""
        branch, name = self.branch_for(data), data.draw(words.gauges)
        if do == "load":
            record = {"type": "Gauge", "data": {"name": name, **values}}
            self.play("load", handle=handle, mode="merge", branch=branch, records=[record])
            return
        statement: dict[str, Any] = {"op": do, "type": "Gauge"}
        if do == "insert":
            statement["data"] = {"name": name, **values}
        else:
            statement["where"] = data.draw(words.gauge_predicates(name))
        if do == "update":
            statement["set"] = values
        self.play("mutate", handle=handle, branch=branch, statements=[statement])

    @rule(handle=handles, kind=st.sampled_from(["Knows", "Owns"]), end=st.sampled_from(["from", "to"]), data=st.data())
    def disconnect(self, handle: int, kind: str, end: str, data: st.DataObject) -> None:
        branch = self.branch_for(data)
        where = {"property": end, "op": "eq", "value": self.key_for(data, branch)}
        self.play("mutate", handle=handle, branch=branch, statements=[{"op": "delete", "edge": kind, "where": where}])

    # -- branches ------------------------------------------------------------------------------------------------------

    @rule(handle=handles, name=words.branches, data=st.data())
    def branch(self, handle: int, name: str, data: st.DataObject) -> None:
        self.play("branch_create", handle=handle, name=name, source=self.branch_for(data))

    @precondition(lambda self: len(self.player.graph.model.branch_list()) > 1)
    @rule(handle=handles, data=st.data())
    def unbranch(self, handle: int, data: st.DataObject) -> None:
        self.play("branch_delete", handle=handle, name=self.branch_for(data))

    @precondition(lambda self: len(self.player.graph.model.branch_list()) > 1)
    @rule(handle=handles, data=st.data())
    def merge(self, handle: int, data: st.DataObject) -> None:
        self.play("merge", handle=handle, source=self.branch_for(data), target=self.branch_for(data))

    @precondition(lambda self: len(self.player.graph.model.branch_list()) > 1)
    @rule(handle=handles, change=words.person_data(hostile=False), data=st.data())
    def merge_there_and_back(self, handle: int, change: dict[str, Any], data: st.DataObject) -> None:
        """A change on one side, merged to the other, a change there, merged back."""
        there = self.player.graph.model.branch_list()
        one = data.draw(st.sampled_from(there))
        other = data.draw(st.sampled_from([each for each in there if each != one]))
        for source, target in ((one, other), (other, one)):
            record = {"type": "Person", "data": {"name": self.key_for(data, source), **change}}
            self.play("load", handle=handle, mode="merge", branch=source, records=[record])
            self.play("merge", handle=handle, source=source, target=target)

    # -- the schema ----------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.schema_number + 1 < len(words.LATER_SCHEMAS))
    @rule(ahead=st.integers(1, 2), kind=tenths, allow_data_loss=st.booleans(), data=st.data())
    def change_schema(self, ahead: int, kind: int, allow_data_loss: bool, data: st.DataObject) -> None:
        """With branches it is refused; mostly they are removed first, the youngest before the oldest."""
        if kind == 0 and self.schema_number == -1:
            self.play("schema_apply", source=data.draw(st.sampled_from(words.REFUSED_SCHEMAS)))
            return
        if kind > 2:
            for name in self.player.youngest_first():
                self.play("branch_delete", name=name)
        number = min(self.schema_number + ahead, len(words.LATER_SCHEMAS) - 1)
        source = words.LATER_SCHEMAS[number]
        self.play("schema_apply", source=source, allow_data_loss=allow_data_loss)
        if self.player.schema == source:
            self.schema_number = number

    # -- maintenance, handles, reading ---------------------------------------------------------------------------------

    @rule(handle=handles)
    def optimize(self, handle: int) -> None:
        self.play("optimize", handle=handle)

    @rule(handle=handles, data=st.data())
    def ensure_indices(self, handle: int, data: st.DataObject) -> None:
        self.play("ensure_indices", handle=handle, branch=self.branch_for(data))

    @rule(handle=handles, keep=st.integers(1, 3))
    def cleanup(self, handle: int, keep: int) -> None:
        self.play("cleanup", handle=handle, keep_versions=keep)

    @rule(number=handles, kind=st.sampled_from(["open", "open", "read-only", "refresh"]))
    def open(self, number: int, kind: str) -> None:
        if kind == "refresh":
            self.play("refresh", handle=number)
        else:
            self.play("open", number=number, read_only=kind == "read-only")

    @rule(handle=handles, kind=st.sampled_from(["time_travel", "diff", "import"]), backs=st.tuples(depths, depths),
          data=st.data())  # fmt: skip
    def look(self, handle: int, kind: str, backs: tuple[int, int], data: st.DataObject) -> None:
        branch = self.branch_for(data)
        if kind == "time_travel":
            self.play("time_travel", handle=handle, branch=branch, back=backs[0])
        elif kind == "diff":
            older, newer = {"branch": branch, "back": backs[0]}, {"branch": self.branch_for(data), "back": backs[1]}
            self.play("diff", handle=handle, older=older, newer=newer)
        else:
            self.play("import", branch=branch)


def run_sequences(start: Callable[[], Player], *, number: int, sequences: int, steps: int) -> type[SequenceMachine]:
    """Run random sequences from a seed. What fails is raised as it is; the machine's `latest` has the steps."""

    class Seeded(SequenceMachine):
        pass

    Seeded.start = staticmethod(start)
    machine = seed(number)(Seeded)
    try:
        with _nothing_borrowed():
            run_state_machine_as_test(
                machine,
                settings=settings(
                    max_examples=sequences + 1,
                    stateful_step_count=steps,
                    database=None,
                    deadline=None,
                    derandomize=False,
                    phases=(Phase.generate,),
                    suppress_health_check=list(HealthCheck),
                    report_multiple_bugs=False,
                ),
            )
    except BaseException as error:
        error.machine = Seeded  # type: ignore[attr-defined]
        raise
    return Seeded


@contextmanager
def _nothing_borrowed() -> Iterator[None]:
    """Keep Hypothesis from using constants that it finds in the source of whatever is imported in this process: a seed
    would be another story in a run of one test, in a run of all, and where this package is installed."""
    with mock.patch.object(HypothesisProvider, "_maybe_draw_constant", lambda *_, **__: None, create=True):
        yield
