"""Benchmarks as ratios: what is noise, what is a difference, and what a history holds."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import inf, nan
from pathlib import Path
from typing import Any

import lance
import pytest
from lance import LanceDataset
from typer.testing import CliRunner, Result

import fixtures
from conformance.cli import app
from cost_budgets import benching
from cost_budgets.benching import (
    BenchRun,
    HistoryError,
    Ratio,
    differences,
    elsewhere,
    ratio_of,
    read_history,
    save,
    usual,
)
from failpoints.workshop import SweepBroken
from fixtures.forge import Forge
from fixtures.stores import moto
from fixtures.stores.catalog import S3, Store, StoreUnavailable

RUN = BenchRun(
    "omniref 0.1.0", "local", 20, "2026-01-01T00:00:00+00:00", {"python": "3.11"}, (Ratio("insert", 3.0, 0.05),)
)


def later(ratio: float, noise: float = 0.05) -> BenchRun:
    return replace(RUN, ratios=(Ratio("insert", ratio, noise),))


def test_a_ratio_is_taken_round_by_round() -> None:
    """A neighbour that slows everything down in some rounds changes nothing."""
    found = ratio_of("insert", [3.0, 30.0, 3.0, 3.0], [3.0, 30.0, 3.0, 3.0], [1.0, 10.0, 1.0, 1.0])
    assert (found.ratio, found.noise) == (3.0, 0.0)


def test_an_operation_that_differs_from_itself_is_noisy() -> None:
    assert ratio_of("insert", [3.6] * 4, [3.0] * 4, [1.0] * 4).noise == pytest.approx(0.2, abs=0.01)
    assert ratio_of("insert", [2.0, 3.0, 4.0, 5.0], [2.0, 3.0, 4.0, 5.0], [1.0] * 4).noise > 0.1


@pytest.mark.parametrize(("now", "slower"), [(3.0, False), (3.5, False), (3.7, True), (1.0, False)])
def test_only_what_rises_beyond_the_noise_is_slower(now: float, slower: bool) -> None:
    (found,) = differences(later(now), RUN)
    assert (found.then, found.allowed, found.slower) == (3.0, 0.2, slower)


def test_more_noise_in_either_run_allows_more() -> None:
    assert not differences(later(4.0, noise=0.2), RUN)[0].slower
    assert not differences(later(4.0), later(3.0, noise=0.2))[0].slower


def test_what_was_not_measured_before_is_new() -> None:
    (found,) = differences(replace(RUN, ratios=(Ratio("read", 1.0, 0.0),)), RUN)
    assert found.then is None and not found.slower


def test_a_run_is_held_against_what_runs_of_the_same_engine_on_the_same_store_usually_gave(tmp_path: Path) -> None:
    path = tmp_path / "new" / "history.jsonl"
    others = (replace(later(9.0), store="moto"), replace(later(8.0), engine="other 1"))
    for run in (RUN, later(4.0), later(4.2, noise=0.01), *others):
        save(path, run)
    history = read_history(path)
    assert usual(history, replace(RUN, engine="omniref 0.2.0")) == later(4.0)
    assert usual(history, replace(RUN, engine="nobody 1")) is None
    assert read_history(tmp_path / "nowhere.jsonl") == []


def test_who_gets_a_little_slower_each_time_is_slower_in_the_end() -> None:
    """Against the run before it alone, each of these would be within the noise."""
    history = [later(3.0)]
    for _ in range(20):
        now = later(history[-1].ratios[0].ratio * 1.1, noise=0.02)
        (alone,) = differences(now, history[-1])
        assert not alone.slower
        before = usual(history, now)
        assert before is not None
        if differences(now, before)[0].slower:
            return
        history.append(now)
    pytest.fail("seven times slower, and nobody noticed")


@pytest.mark.parametrize("other", [{"adapter": "cmd:omniref drive"}, {"rounds": 5}, {"store": "moto"}])
def test_runs_that_were_not_measured_alike_are_not_compared(other: dict[str, Any]) -> None:
    assert usual([RUN], replace(RUN, **other)) is None
    assert elsewhere([RUN], replace(RUN, **other)) == []


def test_a_run_in_another_place_is_not_compared_and_it_is_said_which() -> None:
    there = {"python": "3.11", "pylance": "7", "touchstone": "1"}
    then, now = replace(RUN, environment=there), replace(RUN, environment={**there, "pylance": "8", "touchstone": "2"})
    assert usual([then], now) is None
    assert elsewhere([then], now) == ["pylance 7 then, 8 now"]
    assert usual([then], replace(then, environment={**there, "touchstone": "2"})) == then


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        '{"format": 1}',
        json.dumps({**RUN.as_json(), "format": 9}),
        "[" * 200_000,
        json.dumps({**RUN.as_json(), "format": True}),
        json.dumps({**RUN.as_json(), "engine": 3}),
        json.dumps({**RUN.as_json(), "engine": "\ud800"}),
        json.dumps({**RUN.as_json(), "adapter": None}),
        json.dumps({**RUN.as_json(), "rounds": True}),
        json.dumps({**RUN.as_json(), "rounds": {"a": 1}}),
        json.dumps({**RUN.as_json(), "environment": [["python", "3.11"]]}),
        json.dumps({**RUN.as_json(), "ratios": {"insert": 3.0}}),
        json.dumps({**RUN.as_json(), "ratios": [7]}),
        *(
            json.dumps({**RUN.as_json(), "ratios": [{"name": "insert", "ratio": ratio, "noise": noise}]})
            for ratio, noise in [(nan, 0.1), (inf, 0.1), (0.0, 0.1), (-1.0, 0.1), (3.0, nan), (3.0, -0.1), (3.0, 1e6)]
        ),
        *(
            json.dumps({**RUN.as_json(), "ratios": [{"name": "insert", "ratio": ratio, "noise": noise}]})
            for ratio, noise in [(10**400, 0.1), (3.0, 10**400), (True, 0.1), ("7", 0.1), (None, 0.1), (3.0, False)]
        ),
    ],
)
def test_a_history_that_cannot_be_read_is_said_with_its_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "history.jsonl"
    save(path, RUN)
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(HistoryError, match=r"history.jsonl:2: is no run") as refused:
        read_history(path)
    assert len(str(refused.value)) < 300 + len(str(path)), "what is wrong is named, not shown whole"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "it is no JSON: Expecting property name enclosed in double quotes, column 2;"),
        ('{"engine": "e"}', "it has no 'format';"),
        ("[" * 200_000, "it is nested deeper than any run is;"),
    ],
)
def test_what_is_wrong_with_a_history_is_said_in_words_and_what_to_do(tmp_path: Path, line: str, words: str) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text(line)
    with pytest.raises(HistoryError) as refused:
        read_history(path)
    assert str(refused.value).startswith(f"{path}:1: is no run of a benchmark: {words} remove that line")


def test_a_history_that_is_no_file_or_no_text_is_said_in_words(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match=r"is a folder, not a file$"):
        read_history(tmp_path)
    (tmp_path / "history.jsonl").write_bytes(b"\xff")
    with pytest.raises(HistoryError, match="is no text in UTF-8: invalid start byte at byte 0"):
        read_history(tmp_path / "history.jsonl")


def test_whole_numbers_are_ratios_and_a_run_without_an_adapter_is_one(tmp_path: Path) -> None:
    body = {**RUN.as_json(), "ratios": [{"name": "insert", "ratio": 3, "noise": 0}]}
    del body["adapter"]
    (tmp_path / "history.jsonl").write_text(json.dumps(body) + "\n")
    assert read_history(tmp_path / "history.jsonl") == [later(3.0, noise=0.0)]


def test_the_command_measures_saves_and_compares(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    args = ["bench", "--rounds", "3", "--history", str(path), "--compare"]
    first = CliRunner().invoke(app, args, env={"COLUMNS": "200"})
    assert first.exit_code == 0, first.output
    assert "no earlier run" in first.output and "insert one row" in first.output
    impossible = json.loads(path.read_text())
    for ratio in impossible["ratios"]:
        ratio["ratio"], ratio["noise"] = 1e-6, 0.0
    path.write_text(json.dumps(impossible) + "\n")
    second = CliRunner().invoke(app, args, env={"COLUMNS": "200"})
    assert second.exit_code == 1, second.output
    assert "slower than usual" in second.output and "not added" in second.output
    assert len(path.read_text().splitlines()) == 1, "a slow run is nothing to be held against"
    impossible["environment"]["pylance"] = "0.0.1"
    path.write_text(json.dumps(impossible) + "\n")
    third = CliRunner().invoke(app, args, env={"COLUMNS": "200"})
    assert third.exit_code == 0, third.output
    assert "not compared, measured elsewhere: pylance 0.0.1 then" in third.output


class FakeBench:
    """A benchmark that takes no time, of whatever is asked for, at stores that are not there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, history: Path) -> None:
        self.history, self.ratios, self.missing = history, RUN.ratios, set[str]()
        self.timeouts: list[float] = []
        monkeypatch.setattr("cost_budgets.bench_command.running", self._running)
        monkeypatch.setattr(benching, "bench", self._bench)

    @contextmanager
    def _running(self, name: str) -> Iterator[Store]:
        if name in self.missing:
            raise StoreUnavailable(f"the store '{name}' cannot run here")
        yield Store(name, {}, lambda: "", lambda uri: None)

    def _bench(self, engine: str, store: Store, *, rounds: int, timeout_seconds: float, told: Any) -> BenchRun:
        self.timeouts.append(timeout_seconds)
        return replace(RUN, store=store.name, rounds=rounds, adapter=engine, ratios=self.ratios)

    def __call__(self, *args: str) -> Result:
        return CliRunner().invoke(app, ["bench", "--history", str(self.history), *args], env={"COLUMNS": "200"})


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeBench:
    return FakeBench(monkeypatch, tmp_path / "history.jsonl")


def test_every_store_that_is_named_is_timed_saved_and_shown(fake: FakeBench) -> None:
    result = fake("--store", "local", "--store", "moto,local")
    assert result.exit_code == 0, result.output
    assert [run.store for run in read_history(fake.history)] == ["local", "moto"]
    assert "omniref 0.1.0 on local, 20 rounds, 0 s" in result.output and "omniref 0.1.0 on moto" in result.output


@pytest.mark.parametrize(("ratio", "missing", "code"), [(9.0, {"minio"}, 1), (3.0, {"minio"}, 4), (3.0, set(), 0)])
def test_the_worst_store_decides(fake: FakeBench, ratio: float, missing: set[str], code: int) -> None:
    assert fake().exit_code == 0
    fake.ratios, fake.missing = later(ratio).ratios, missing
    result = fake("--store", "minio", "--store", "local", "--compare")
    assert result.exit_code == code, result.output
    assert ("skipped: the store 'minio' cannot run here" in result.output) == bool(missing)


def test_runs_with_other_rounds_are_no_lack_of_runs(fake: FakeBench) -> None:
    assert fake("--rounds", "5").exit_code == 0
    result = fake("--rounds", "7", "--compare")
    assert result.exit_code == 4, result.output
    words = "not compared: the last run of this engine on this store had 5 rounds, and this one 7"
    assert words in result.output and "no earlier run" not in result.output
    assert fake("--rounds", "7", "--compare").exit_code == 0, "what was not compared is there for the next one"


def test_where_no_operation_is_in_common_nothing_was_compared(fake: FakeBench) -> None:
    save(fake.history, replace(RUN, adapter="reference", ratios=(Ratio("sing", 2.0, 0.1),)))
    result = fake("--compare")
    assert result.exit_code == 4, result.output
    assert "nothing that was timed now was timed in an earlier run" in result.output
    assert "not slower" not in result.output


def test_what_is_new_is_said_not_to_be_compared(fake: FakeBench) -> None:
    assert fake().exit_code == 0
    fake.ratios = (*RUN.ratios, Ratio("sing", 1.0, 0.1))
    result = fake("--compare")
    assert result.exit_code == 0 and "not slower; not compared: sing" in result.output


def test_how_long_an_answer_may_take_can_be_said(fake: FakeBench) -> None:
    assert fake("--timeout", "7").exit_code == 0 and fake.timeouts == [7.0]


def test_an_engine_that_hangs_is_not_waited_for_any_longer_than_that(tmp_path: Path) -> None:
    args = ["--engine", f"cmd:{sys.executable} -m fixtures.drivers.broken.hangs", "--timeout", "0.5"]
    args += ["--history", str(tmp_path / "history.jsonl")]
    result = CliRunner().invoke(app, ["bench", *args], env={"COLUMNS": "200"})
    assert result.exit_code == 3, result.output
    assert "the driver gave no answer within 0.5 s" in result.output


def test_a_history_whose_last_line_has_lost_its_end_is_added_to_and_not_spoilt(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    save(path, RUN)
    path.write_text(path.read_text().rstrip("\n"))
    save(path, later(4.0))
    assert read_history(path) == [RUN, later(4.0)]


def test_what_lance_alone_cannot_do_is_said_and_is_nobodys_ratio() -> None:
    def broken() -> object:
        raise ValueError("there is no column")

    with pytest.raises(SweepBroken, match="bare Lance broke down: there is no column"):
        benching._bare(broken)()


needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed: it runs the toy")
TOY = f"cmd:node {Path(fixtures.__file__).parent / 'drivers' / 'node' / 'driver.mjs'}"


@needs_node
def test_an_engine_without_tables_is_not_timed_and_told_why(tmp_path: Path) -> None:
    args = ["bench", "--engine", TOY, "--history", str(tmp_path / "history.jsonl")]
    result = CliRunner().invoke(app, args, env={"COLUMNS": "200"})
    assert result.exit_code == 4, result.output
    assert "nothing was timed: the engine keeps no Lance tables at" in result.output


@needs_node
@pytest.mark.s3
def test_an_engine_that_does_not_declare_s3_is_asked_for_nothing_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["bench", "--engine", TOY, "--store", "moto"], env={"COLUMNS": "200"})
    assert result.exit_code == 4, result.output
    assert "nothing was timed: the engine does not declare s3" in result.output
    assert list(tmp_path.iterdir()) == []


def without_ages(table: LanceDataset, scratch: Path) -> LanceDataset:
    return lance.write_dataset(table.to_table().drop_columns(["age"]), scratch / "without-ages.lance")


def without_rows(table: LanceDataset, scratch: Path) -> LanceDataset:
    for file in Path(table.uri, "data").iterdir():
        file.unlink()
    return lance.dataset(table.uri)


@pytest.mark.parametrize(
    ("damage", "code", "words"),
    [
        (without_ages, 4, "nothing was timed: the engine's table of persons at .* has no column 'age'"),
        (without_rows, 3, "could not run on local: bare Lance broke down: .*Not found"),
    ],
)
def test_a_table_that_cannot_be_held_against_lance_is_told_in_words(
    damage: Callable[[LanceDataset, Path], LanceDataset],
    code: int,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = Forge.storage
    monkeypatch.setattr(Forge, "storage", lambda self, key: damage(whole(self, key), tmp_path))
    result = CliRunner().invoke(app, ["bench", "--history", str(tmp_path / "history.jsonl")], env={"COLUMNS": "200"})
    assert result.exit_code == code, result.output
    assert re.search(words, " ".join(result.output.split())), result.output


def test_a_table_that_nobody_can_open_is_told_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Forge.storage

    def storage(self: Forge, key: str) -> LanceDataset:
        for version in Path(whole(self, key).uri, "_versions").iterdir():
            version.write_bytes(b"no version of anything")
        return whole(Forge(self.uri), key)

    monkeypatch.setattr(Forge, "storage", storage)
    result = CliRunner().invoke(app, ["bench", "--history", str(tmp_path / "history.jsonl")], env={"COLUMNS": "200"})
    assert result.exit_code == 3, result.output
    assert "could not run" in result.output and "Traceback" not in result.output


def test_a_history_that_cannot_be_written_is_refused_before_anything_is_timed(fake: FakeBench, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    result = CliRunner().invoke(app, ["bench", "--history", str(tmp_path / "file" / "history.jsonl")])
    assert (result.exit_code, fake.timeouts) == (2, []), result.output
    assert "file is a file, not a folder" in " ".join(result.stderr.split())


@pytest.mark.parametrize("path", ["n" * 300, f"{'n' * 300}/history.jsonl"])
def test_a_history_that_nobody_can_look_at_is_refused_in_words(fake: FakeBench, tmp_path: Path, path: str) -> None:
    result = CliRunner().invoke(app, ["bench", "--history", str(tmp_path / path)])
    assert (result.exit_code, fake.timeouts) == (2, []), result.output
    assert "cannot be written" in " ".join(result.stderr.split())


@pytest.mark.s3
def test_a_store_that_dies_while_it_is_timed_is_the_store_s_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = benching.in_turns

    def in_turns(*args: Any) -> Any:
        os.kill(dying.pid, signal.SIGKILL)
        return right(*args)

    monkeypatch.setattr(benching, "in_turns", in_turns)
    with moto.running() as dying:

        @contextmanager
        def running(name: str) -> Iterator[Store]:
            yield Store(name, dying.env, dying.fresh_root, lambda uri: None, frozenset({S3}))

        monkeypatch.setattr("cost_budgets.bench_command.running", running)
        args = ["bench", "--store", "moto", "--rounds", "3", "--history", str(tmp_path / "history.jsonl")]
        result = CliRunner().invoke(app, args, env={"COLUMNS": "200"})
    assert result.exit_code == 3, result.output
    assert "the store 'moto' broke down" in result.output and "nothing about the engine" in result.output


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--engine", "nonsense"], "'nonsense' names no engine"),
        (["--store", "cloud"], "there is no store 'cloud'"),
        (["--rounds", "1"], "--rounds"),
    ],
)
def test_a_mistake_in_the_request_is_said_in_words(args: list[str], words: str) -> None:
    result = CliRunner().invoke(app, ["bench", *args], env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert words in result.stderr
