"""What is shown while a run goes on: one line per group, with a bar on a terminal.

Also the controller's ear: it gathers the record of every test, from this process or from the workers.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from conformance.runner.interruption import Interruption
from conformance.runner.plugin import LOSE, THERE, THERE_OF_A_WORKER, group_of_file, phase_in_notes, short_name
from conformance.runner.records import PROPERTY, Phase, SuiteTest, TestRecord
from conformance.runner.redaction import words_without_secrets

FAULTS_MAX = 3
_SAID_MAX = 500
_COLOURS = {
    "passed": "green",
    "failed": "red",
    "fault": "red",
    "store_fault": "red",
    "known_failing": "yellow",
    "unsupported": "magenta",
    "skipped": "cyan",
}


def group_of_test(name: str) -> str:
    """The group of a test, by the file that it is in."""
    return group_of_file(Path(name.partition("::")[0]))


class Progression:
    """Listens to pytest, keeps the records, and shows how far it is."""

    def __init__(
        self,
        console: Console,
        interruption: Interruption,
        *,
        quiet: bool = False,
        store: str | None = None,
        give_up: Callable[[], None] = lambda: None,
    ) -> None:
        self.records: dict[str, TestRecord] = {}
        self.faults: list[dict[str, Any]] = []
        self.collect_errors: list[str] = []
        self._console = console
        self._interruption = interruption
        self._give_up = give_up
        self._whole: set[str] = set()
        self._workers: dict[str, int] = {}
        self._there: list[SuiteTest] = []
        self._where = "" if store is None else f" on {store}"
        self._quiet = quiet  # pytest speaks for itself when somebody has given it options.
        self._totals: Counter[str] = Counter()
        self._done: Counter[str] = Counter()
        self._tasks: dict[str, TaskID] = {}
        self._session: pytest.Session | None = None
        self._progress = Progress(
            TextColumn(f"{{task.description:<4}}{self._where}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[loud]}"),
            console=console,
        )

    # -- what pytest says ----------------------------------------------------------------------------------------------

    def pytest_configure(self, config: pytest.Config) -> None:
        config.stash[LOSE] = self._lose

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self._session = session

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if session.items:
            self._begin([item.nodeid for item in session.items])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: Sequence[str]) -> None:
        if not self._totals:
            self._begin(ids)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodeready(self, node: Any) -> None:
        with suppress(AttributeError):  # execnet shows it to nobody; without it, the worker ends a few seconds later.
            self._workers[node.gateway.id] = node.gateway._io.popen.pid

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self._workers.pop(node.gateway.id, None)
        output = getattr(node, "workeroutput", None) or {}  # One that was killed has left none.
        self._there = [SuiteTest(*each) for each in output.get(THERE_OF_A_WORKER, ())] or self._there

    def pytest_keyboard_interrupt(self) -> None:
        """Workers are told too: they would go on with their tests for a while, and be killed then."""
        for pid in self._workers.values():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.collect_errors.append(words_without_secrets(str(report.longrepr)))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self._interruption.came:
            # Whatever is told to end at the same time breaks down, and nobody is to be blamed for it.
            if self._session is not None:
                self._session.shouldstop = "interrupted"
            return
        name = short_name(report.nodeid)
        record = self.records.setdefault(name, TestRecord(name))
        record.seconds += report.duration
        if report.failed and not any(key == PROPERTY for key, _ in report.user_properties):
            # A worker that died has no say in it: neither has the engine. What is cut first may begin in a secret.
            phase = phase_in_notes(name)
            if phase is None:
                said = words_without_secrets(report.longreprtext.strip())
                self._fault(name, f"the test process broke down: {said[-_SAID_MAX:]}", "")
            else:
                record.phases.append(phase)
                self._store_fault(name, phase)
                self._stop_workers(phase.because or "")
        for key, text in report.user_properties:
            if key == PROPERTY:
                phase = Phase.from_text(str(text))
                if phase not in record.phases:
                    record.phases.append(phase)
                    if phase.outcome == "fault":
                        self._fault(name, phase.because or "", phase.stderr or "")
                    elif phase.outcome == "store_fault":
                        self._store_fault(name, phase)
        if report.when == "teardown":
            self._whole.add(name)
            self._finish(record)

    def pytest_sessionfinish(self) -> None:
        self._progress.stop()
        for group, total in self._totals.items():
            if 0 < self._done[group] < total and not self._tasks and not self._quiet:
                words = f"{self._done[group]:>3} of {total} tests{self._where}"
                self._console.print(f"{group:<4} {words}: {self._loud(group)}", highlight=False)

    # -- what people see -----------------------------------------------------------------------------------------------

    def _fault(self, name: str, message: str, stderr: str) -> None:
        self.faults.append({"test": name, "store": None, "message": message, "stderr": stderr})
        passed = any(record.outcome == "passed" and record.proved for record in self.records.values())
        if self._session is not None and (not passed or len(self.faults) >= FAULTS_MAX):
            self._session.shouldstop = "the engine or its adapter broke down"

    def _store_fault(self, name: str, phase: Phase) -> None:
        """One word for each store: the tests that it took with it are in the records."""
        if all(fault["store"] != phase.store for fault in self.faults):
            self.faults.append({"test": name, "store": phase.store, "message": phase.because or "", "stderr": ""})

    def _stop_workers(self, because: str) -> None:
        session = None if self._session is None else self._session.config.pluginmanager.get_plugin("dsession")
        if session is not None:
            session.shouldstop = because

    def _lose(self, name: str, phase: Phase) -> None:
        """In another thread than the test's, which hangs with its store and can be reached by nobody: the end."""
        self.records.setdefault(name, TestRecord(name)).phases.append(phase)
        self._store_fault(name, phase)
        capture = None if self._session is None else self._session.config.pluginmanager.get_plugin("capturemanager")
        if capture is not None:
            capture.suspend_global_capture(in_=True)  # In a test, what is said is kept for its report.
        self._give_up()

    @property
    def finished(self) -> list[TestRecord]:
        """The records of a run; of one that was interrupted only those of tests that came to their end."""
        return [each for name, each in self.records.items() if name in self._whole or not self._interruption.came]

    @property
    def there(self) -> list[SuiteTest]:
        """All tests that the suites have on this store, as this process or a worker has collected them."""
        own = [] if self._session is None else self._session.config.stash.get(THERE, [])
        return own or self._there

    @property
    def goes_on(self) -> bool:
        """Whether another store makes sense: not after a breakdown of the engine, or where pytest was told to stop."""
        return all(fault["store"] is not None for fault in self.faults) and not self._told_to_stop

    @property
    def _told_to_stop(self) -> bool:
        return self._session is not None and bool(self._session.shouldfail)

    def _begin(self, nodeids: Sequence[str]) -> None:
        self._totals.update(group_of_test(short_name(nodeid)) for nodeid in nodeids)
        if self._console.is_terminal and not self._quiet:
            self._progress.start()
            for group, total in self._totals.items():
                self._tasks[group] = self._progress.add_task(group, total=total, loud="")

    def _finish(self, record: TestRecord) -> None:
        group = group_of_test(record.name)
        self._done[group] += 1
        loud = self._loud(group)
        if group in self._tasks:
            self._progress.update(self._tasks[group], completed=self._done[group], loud=loud)
        elif self._done[group] == self._totals[group] and not self._quiet:
            self._console.print(f"{group:<4} {self._done[group]:>3} tests{self._where}: {loud}", highlight=False)

    def _loud(self, group: str) -> str:
        """Every outcome with its number: nothing may go unseen."""
        counted: Counter[str] = Counter(
            record.outcome for name, record in self.records.items() if group_of_test(name) == group and record.phases
        )
        return ", ".join(
            f"[{_COLOURS[each]}]{counted[each]} {each.replace('_', ' ')}[/]" for each in _COLOURS if counted[each]
        )
