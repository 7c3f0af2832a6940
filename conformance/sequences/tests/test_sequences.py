"""Sequences: the same for a seed, rich enough to meet bugs, and cut down to what is needed when they fail."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from conformance.judge import Engine, RequirementBroken
from conformance.sequences.machine import run_sequences
from conformance.sequences.player import Player, Step
from conformance.sequences.shrinking import Failure, replay_steps, shrink
from conformance.sequences.story import line_of, script_of
from conformance.sequences.vocabulary import BASE
from conformance.traces import TraceError, check_trace, make_trace, read_trace, write_trace

ENGINES = "python:conformance.runner.tests.engines"


@contextmanager
def players(tmp_path: Path, engine: str = "reference") -> Iterator[tuple[Callable[[], Player], list[Player]]]:
    """A start of sequences on new graphs, and everything that was started."""
    made: list[Player] = []
    under_test = Engine.connect(engine, env={})

    def start() -> Player:
        made.append(
            Player(under_test, lambda: str(tmp_path / f"graph-{len(made)}-{len(list(tmp_path.iterdir()))}"), {}, BASE)
        )
        return made[-1]

    yield start, made
    under_test.close()


def turns(tmp_path: Path, engine: str, peer: str) -> Iterator[Player]:
    """A graph that two engines take turns on."""
    first, second = (Engine.connect(each, env={}) for each in (engine, peer))
    roots = (str(tmp_path / f"graph-{number}") for number in range(9))
    yield Player(first, lambda: next(roots), {}, BASE, peer=second)
    first.close()
    second.close()


def test_two_engines_take_turns_on_one_graph_and_either_is_blamed_for_its_own_step(tmp_path: Path) -> None:
    row: Step = {
        "do": "load",
        "mode": "merge",
        "branch": "main",
        "records": [{"type": "Person", "data": {"name": "a"}}],
    }
    for bad in (0, 1):
        specs = ["reference", "reference"]
        specs[bad] = f"{ENGINES}:ForgetsOnOptimize"
        with contextmanager(turns)(tmp_path / str(bad), *specs) as player:
            player.play({**row, "handle": 0})
            player.play({"do": "open", "number": 2, "handle": 1})
            player.play({"do": "optimize", "handle": 1 - bad})
            player.play({"do": "import", "branch": "main", "handle": 1})
            with pytest.raises(RequirementBroken, match="after optimize the branch 'main'"):
                player.play({"do": "optimize", "handle": bad})


def test_the_other_engine_looks_at_every_step_and_what_it_misreads_is_about_the_value(tmp_path: Path) -> None:
    """Every step of one engine is looked at through the other one, also if the writer has more handles."""
    empty: Step = {
        "do": "load",
        "mode": "merge",
        "branch": "main",
        "records": [{"type": "Gauge", "data": {"name": "a", "file": "base64:"}}],
    }
    with contextmanager(turns)(tmp_path, "reference", f"{ENGINES}:ShowsNoEmptyBlobs") as player:
        player.play({"do": "open", "number": 2, "handle": 0})
        with pytest.raises(RequirementBroken, match="seen through another handle") as broken:
            player.play({**empty, "handle": 0})
        assert broken.value.ids == ("EXP-06",)


def test_the_peer_is_another_process_of_its_own_kind(tmp_path: Path) -> None:
    """What it does not offer, it is not asked for; the first engine is."""
    with contextmanager(turns)(tmp_path, "reference", f"{ENGINES}:HasNoBranches") as player:
        player.play({"do": "branch_create", "name": "feature", "source": "main", "handle": 1})
        assert player.graph.model.branch_list() == ["main"]
        player.play({"do": "branch_create", "name": "feature", "source": "main", "handle": 0})
        assert player.graph.model.branch_list() == ["feature", "main"]


def steps_of(tmp_path: Path, seed: int) -> list[list[Step]]:
    tmp_path.mkdir()
    with players(tmp_path) as (start, made):
        run_sequences(start, number=seed, sequences=2, steps=6)
    return [player.steps for player in made]


def test_a_seed_gives_the_same_steps_every_time_and_another_seed_gives_others(tmp_path: Path) -> None:
    first, again, other = (steps_of(tmp_path / name, seed) for name, seed in (("first", 3), ("again", 3), ("other", 4)))

    assert first == again
    assert not [steps for steps in first if steps in other], "and no sequence of one seed is one of another's"


def test_a_seed_is_the_same_story_whatever_else_is_imported(tmp_path: Path) -> None:
    """Hypothesis draws constants of the modules that are loaded; here there are many of them, and there hardly any."""
    program = (
        "import json, sys; from pathlib import Path\n"
        "from conformance.sequences.tests.test_sequences import steps_of\n"
        "print(json.dumps(steps_of(Path(sys.argv[1]), 1)))"
    )
    alone = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "alone")], capture_output=True, text=True, check=True
    )
    constants = tmp_path / "constants.py"
    constants.write_text("\n".join(f"NUMBER_{number} = {number}" for number in range(300)), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(tmp_path))
        importlib.import_module("constants")
        here = steps_of(tmp_path / "here", 1)

    assert json.loads(alone.stdout) == here


def test_steps_are_plain_values(tmp_path: Path) -> None:
    for steps in steps_of(tmp_path / "some", 5):
        assert json.loads(json.dumps(steps)) == steps


@pytest.mark.requirement("BRA-17", "MRG-12")
def test_sequences_meet_every_kind_of_step(tmp_path: Path) -> None:
    """Without branches, merges and rows to merge, a sequence would find nothing."""
    with players(tmp_path) as (start, made):
        run_sequences(start, number=17, sequences=14, steps=14)

    done = Counter(step["do"] for player in made for step in player.steps)
    kinds = {"load", "mutate", "branch_create", "branch_delete", "merge", "schema_apply", "optimize", "ensure_indices"}
    kinds |= {"cleanup", "open", "refresh", "time_travel", "diff", "import"}
    assert kinds <= done.keys(), f"never done: {sorted(kinds - done.keys())}"
    assert sum(len(player.graph.model.commits()) for player in made) > 5 * len(made) // 2
    assert any(len(player.graph.model.branch_list()) > 2 for player in made)


LOSES: list[Step] = [
    {"do": "load", "mode": "merge", "branch": "main", "records": [{"type": "Person", "data": {"name": name}}]}
    for name in ("a", "b", "c")
]
OPTIMIZE: Step = {"do": "optimize"}


def test_a_failing_sequence_is_cut_down_to_what_it_needs(tmp_path: Path) -> None:
    with players(tmp_path, f"{ENGINES}:ForgetsOnOptimize") as (start, _):
        steps = [LOSES[1], *LOSES, {"do": "branch_create", "name": "feature", "source": "main"}, LOSES[2], OPTIMIZE]
        failure = replay_steps(start, steps)
        assert failure is not None

        shortest = shrink(start, failure, replays=40)

    assert shortest.steps == (LOSES[0], OPTIMIZE)
    assert shortest.ids == failure.ids


def test_what_is_left_of_a_failing_sequence_is_made_simpler(tmp_path: Path) -> None:
    """The records that the failure does not need go, and so do values, the actor and the handle."""
    people = [{"type": "Person", "data": {"name": name, "age": 1, "note": "x"}} for name in ("a", "b", "c", "d")]
    rich: Step = {"do": "load", "mode": "merge", "branch": "main", "records": people, "actor": "ann", "handle": 2}
    with players(tmp_path, f"{ENGINES}:ForgetsOnOptimize") as (start, _):
        failure = replay_steps(start, [rich, OPTIMIZE])
        assert failure is not None

        simplest = shrink(start, failure, replays=40)

    poor = {"do": "load", "mode": "merge", "branch": "main", "records": [{"type": "Person", "data": {"name": "a"}}]}
    assert simplest.steps == (poor, OPTIMIZE)


def test_a_known_failure_is_taken_back_and_the_sequence_goes_on(tmp_path: Path) -> None:
    """What comes after it is judged as if nobody had asked for what fails, through handles that have not seen it."""
    under_test = Engine.connect(f"{ENGINES}:ForgetsOnOptimize", env={})
    player = Player(under_test, lambda: str(tmp_path / "graph"), {}, BASE, known=["OPT-01"])
    reads: Step = {"do": "open", "number": 1, "read_only": True}
    player.play(reads)
    for step in (LOSES[0], OPTIMIZE, LOSES[1], OPTIMIZE, LOSES[2]):
        player.play(step)

    assert player.steps == [reads, *LOSES], "what was taken back is no part of the story"
    assert [(met.ids, met.steps) for met in player.met] == [
        (("OPT-01",), (reads, LOSES[0], OPTIMIZE)),
        (("OPT-01",), (reads, LOSES[0], LOSES[1], OPTIMIZE)),
    ]
    assert [row["name"] for row in player.graph.handle.read("node:Person")] == ["a", "b", "c"]
    assert player.done["optimize"] == 0, "and shows nothing"
    under_test.close()


def test_a_failure_that_breaks_more_than_is_known_ends_the_sequence(tmp_path: Path) -> None:
    under_test = Engine.connect(f"{ENGINES}:ForgetsOnOptimize", env={})
    player = Player(under_test, lambda: str(tmp_path / "graph"), {}, BASE, known=["MRG-12"])
    player.play(LOSES[0])

    with pytest.raises(RequirementBroken, match="after optimize"):
        player.play(OPTIMIZE)
    under_test.close()


def test_shrinking_stays_within_its_budget(tmp_path: Path) -> None:
    with players(tmp_path, f"{ENGINES}:ForgetsOnOptimize") as (start, made):
        failure = Failure((*LOSES, OPTIMIZE), ("OPT-01",), "because")

        shrink(start, failure, replays=2)

    assert len(made) == 2


def test_a_sound_sequence_does_not_fail(tmp_path: Path) -> None:
    with players(tmp_path) as (start, _):
        assert replay_steps(start, [*LOSES, OPTIMIZE]) is None


def test_a_step_that_the_engine_has_no_operation_for_is_passed_over(tmp_path: Path) -> None:
    with players(tmp_path, f"{ENGINES}:HasNoBranches") as (start, _):
        assert replay_steps(start, [*LOSES, {"do": "branch_create", "name": "feature", "source": "main"}]) is None


def test_what_the_engine_does_not_have_of_an_operation_is_passed_over(tmp_path: Path) -> None:
    change = {"op": "update", "type": "Person", "where": {"property": "name", "op": "eq", "value": "a"}}
    less: list[Step] = [
        {"do": "mutate", "branch": "main", "statements": [{**change, "set": {"age": 1}}]},
        {"do": "open", "number": 1, "read_only": True},
    ]
    looks: Step = {"do": "time_travel", "branch": "main", "back": 0}

    with players(tmp_path, f"{ENGINES}:SaysLess") as (start, made):
        assert replay_steps(start, [*LOSES, *less, looks, LOSES[0]]) is None

    assert made[0].done == {"load": 4, "time_travel": 1}


def test_a_story_is_one_numbered_line_per_step() -> None:
    assert (
        script_of([OPTIMIZE, {"do": "open", "handle": 2, "number": 1}])
        == "  1. optimize\n  2. open (handle 2) number=1"
    )
    assert len(line_of({"do": "load", "records": ["x" * 5000]})) < 500


# -- traces ------------------------------------------------------------------------------------------------------------

FOUND: dict[str, Any] = {"test": "test_seq_sequences.py::test_x", "broke": ["OPT-01"], "operations": []}


def test_a_trace_is_written_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"

    write_trace(path, {**FOUND, "schema": BASE, "steps": [OPTIMIZE]}, engine="cmd:./x", store="moto", seed=7)

    trace = read_trace(path)
    assert (trace["kind"], trace["seed"], trace["store"], trace["steps"]) == ("sequence", 7, "moto", [OPTIMIZE])


def test_a_trace_whose_schema_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    write_trace(path, {**FOUND, "schema": "nonsense", "steps": [OPTIMIZE]}, engine="x", store="local", seed=7)

    with pytest.raises(TraceError, match=r"trace\.schema: is no schema: line 1, column 1"):
        read_trace(path)


def test_what_a_trace_says_of_the_engine_is_what_the_caller_has_cleared_of_secrets() -> None:
    found = {**FOUND, "engine": "cmd:env TOKEN=hunter2 ./x"}

    assert make_trace(found, engine="cmd:env TOKEN=… ./x", store=None, seed=0)["engine"] == "cmd:env TOKEN=… ./x"


def test_a_failure_without_steps_is_an_example() -> None:
    assert make_trace(FOUND, engine="reference", store=None, seed=0)["kind"] == "example"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("not json", "is not JSON"),
        ("[]", 'trace: [] does not fit: type is "object"'),
        ("{}", "trace.format: is missing"),
    ],
)
def test_what_is_no_trace_is_refused_in_words(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "trace.json"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(TraceError) as caught:
        read_trace(path)

    assert words in str(caught.value) and "trace.json" in str(caught.value)


def test_a_sequence_without_its_schema_is_refused() -> None:
    trace = make_trace({**FOUND, "schema": BASE, "steps": []}, engine="reference", store=None, seed=0)
    del trace["schema"]

    with pytest.raises(TraceError, match="trace.schema: is missing"):
        check_trace(trace, "here")


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ({"do": "optimise"}, r"trace.steps\[0\].do: \"optimise\" is none of load, "),
        ({"do": "init"}, r"trace.steps\[0\].do: \"init\" is none of load, "),
        ({"do": "mutate"}, r"trace.steps\[0\].statements: is missing"),
        ({"do": "mutate", "statements": [{"op": "insert"}]}, r"trace.steps\[0\].statements\[0\]: "),
        (
            {"do": "load", "records": [], "mod": "merge"},
            r"trace.steps\[0\].mod: there is no such field; there are do, ",
        ),
        ({"do": "open"}, r"trace.steps\[0\].number: is missing"),
        ({"do": "diff", "older": {"branch": "main"}, "newer": {}}, r"trace.steps\[0\].newer.branch: is missing"),
        ({"do": "optimize", "handle": -1}, r"trace.steps\[0\].handle: -1 does not fit: minimum is 0"),
    ],
)
def test_a_step_that_nobody_can_play_is_refused_by_its_field(step: dict[str, Any], words: str) -> None:
    with pytest.raises(TraceError, match=words):
        make_trace({**FOUND, "schema": BASE, "steps": [step]}, engine="reference", store=None, seed=0)


def test_a_trace_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be read"):
        read_trace(tmp_path / "nowhere.json")


def test_a_requirement_that_is_broken_on_the_way_keeps_its_words(tmp_path: Path) -> None:
    with players(tmp_path, f"{ENGINES}:ForgetsOnOptimize") as (start, _), pytest.raises(RequirementBroken) as caught:
        player = start()
        player.play(LOSES[0])
        player.play(OPTIMIZE)

    assert "after optimize the branch 'main' is not what it means" in caught.value.because
