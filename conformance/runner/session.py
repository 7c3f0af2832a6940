"""A whole run: check what was asked for, ask the engine whether it is there, test, judge, report."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NoReturn

import pytest
from rich.console import Console
from rich.markup import escape

from conformance.adapters import AdapterFault, EngineError, Unsupported
from conformance.judge import Engine, Hello
from conformance.registry import requirements
from conformance.report import write_report
from conformance.runner.interruption import Interruption, heard
from conformance.runner.junit import join_junit
from conformance.runner.known import KnownFailingError, KnownFailure, read_known_failing
from conformance.runner.plugin import FAULTS, SUITES
from conformance.runner.profiles import PROFILES
from conformance.runner.progress import Progression
from conformance.runner.records import SuiteTest, TestRecord
from conformance.runner.redaction import without_secrets
from conformance.runner.verdict import COULD_NOT_RUN, Verdict, judge
from conformance.runner.watch import StoreIsSilent, watched
from conformance.traces import write_trace
from fixtures.stores import endpoint, without_proxies_on_loopback
from fixtures.stores.catalog import (
    OWN_SERVER,
    SCRATCH_VARIABLE,
    Store,
    StoreUnavailable,
    kind_of,
    running,
    scratch_directory,
    scratch_missing,
)
from fixtures.stores.ledger import Entry, compared
from fixtures.stores.left_behind import NOTES_VARIABLE, say_what_is_left

DISTRIBUTION: Final = "omnigraph-touchstone"
SMALLEST_SCHEMA: Final = "node Thing {\n  name: String @key\n}\n"
JUNIT: Final = "junit.xml"
_VERSIONS_OF: Final = ("pylance", "pyarrow", "obstore", "pytest", "hypothesis")


@dataclass(frozen=True)
class RunOptions:
    """What was asked for."""

    engine: str = "reference"
    peer: str | None = None
    stores: tuple[str, ...] = ("local",)
    suites: tuple[str, ...] = ()
    profile: str = "default"
    seed: int = 0
    operations: int | None = None
    known_failing: Path | None = None
    report: Path | None = None
    timeout_seconds: float = 120.0
    workers: int = 2
    attach: bool = False
    only_test: str | None = None
    pytest_args: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether all examples of what was asked for are run."""
        return PROFILES[self.profile].all_examples and not self.pytest_args and self.only_test is None

    def command(self) -> str:
        """The command that repeats this run, without secrets: they have to be put in again."""
        words = ["touchstone", "run", "--engine", without_secrets(self.engine)]
        if self.peer is not None:
            words += ["--peer", without_secrets(self.peer)]
        for name in self.stores:
            words += ["--store", name]
        for group in self.suites:
            words += ["--suite", group]
        words += ["--profile", self.profile, "--seed", str(self.seed)]
        if self.operations is not None:
            words += ["--operations", str(self.operations)]
        if self.known_failing is not None:
            words += ["--known-failing", str(self.known_failing)]
        # Secrets are looked for in words as they were given: quoted once more, they would be hard to recognise.
        rest = f" -- {without_secrets(shlex.join(self.pytest_args))}" if self.pytest_args else ""
        return shlex.join(words) + rest


Show = Callable[["Run", Console], None]


@dataclass
class Run:
    """A run while it happens, and what came of it."""

    options: RunOptions
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    began: float = field(default_factory=time.monotonic)
    hello: Hello | None = None
    known: tuple[KnownFailure, ...] = ()
    stores: list[dict[str, Any]] = field(default_factory=list)
    parity: list[dict[str, Any]] = field(default_factory=list)
    records: list[TestRecord] = field(default_factory=list)
    # All tests of the suites on the stores that were tested, also those that were not selected.
    there: list[SuiteTest] = field(default_factory=list)
    faults: list[dict[str, Any]] = field(default_factory=list)
    interruption: Interruption = field(default_factory=Interruption)
    verdict: Verdict | None = None
    show: Show = lambda this, console: None
    # For requirements that are measured and not tested, what measures them.
    budgets: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def available(self) -> list[str]:
        """The stores that can be used."""
        return [row["name"] for row in self.stores if row["skipped"] is None]


class RunUsageError(ValueError):
    """Something in the request that no run can be made of."""


def check_options(options: RunOptions) -> tuple[KnownFailure, ...]:
    """Refuse what cannot be run before anything is started; the known failures, read."""
    groups = {each.group for each in requirements().values()}
    unknown = [each for each in options.suites if each.upper() not in groups | {"SEQ", FAULTS}]
    if unknown:
        names = ", ".join(sorted(groups))
        raise RunUsageError(f"there is no suite '{unknown[0]}'; there are {names}, sequences and faults")
    if options.peer is not None and {each.upper() for each in options.suites} != {"SEQ"}:
        raise RunUsageError("--peer takes turns in random sequences: give --suite sequences, or race them with 'race'")
    unfit = [name for name in options.stores if OWN_SERVER not in kind_of(name).capabilities]
    if FAULTS in [each.upper() for each in options.suites] and unfit:
        because = "a local directory has no requests that could be cut or held"
        if unfit[0] != "local":
            because = f"requests are cut and held between the engine and a server of our own, and '{unfit[0]}' is none"
        raise RunUsageError(f"the suite {FAULTS} needs an S3 store, such as --store moto: {because}")
    unfit_scratch = scratch_missing()
    if unfit_scratch is not None:
        raise RunUsageError(unfit_scratch)
    if options.report is not None:
        try:
            options.report.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunUsageError(f"the report cannot be written to '{options.report}': {error.strerror}") from None
    if options.known_failing is None:
        return ()
    try:
        known = read_known_failing(options.known_failing)
    except KnownFailingError as error:
        raise RunUsageError(str(error)) from None
    _refuse_unknown_tests(options.known_failing, known)
    return known


def run(
    options: RunOptions,
    console: Console,
    show: Show = lambda this, console: None,
    budgets: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> Run:
    """Run the suites, judge, write the report if one is wanted, and show what came of it."""
    this = Run(options, known=check_options(options), show=show, budgets=budgets)
    without_aws_variables()
    with heard() as this.interruption:
        with suppress(KeyboardInterrupt), _scratch():
            _try_stores(this, console)
            if not this.faults:
                _test_on_each(this, console)
        conclude(this, console)
    return this


def conclude(this: Run, console: Console) -> None:
    """The verdict, the report if one is wanted, and the words."""
    options = this.options
    this.verdict = judge(
        this.records,
        this.available,
        this.known,
        this.faults,
        there=this.there,
        whole=options.is_whole,
        missing_stores=[name for name in options.stores if name not in this.available],
        interrupted=this.interruption.came,
    )
    if options.report is not None:
        _write(this)
    this.show(this, console)


def _give_up(this: Run, console: Console) -> NoReturn:
    """The end of a run whose main thread waits for a store, and hears nobody."""
    conclude(this, console)
    say_what_is_left()
    shutil.rmtree(os.environ[SCRATCH_VARIABLE], ignore_errors=True)
    leave(COULD_NOT_RUN)


def leave(exit_code: int) -> NoReturn:
    """End this process without waiting for threads of it that wait for a store."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)


@contextmanager
def _scratch() -> Iterator[None]:
    """One directory for all processes of a run, removed at its end, however it came."""
    outer = os.environ.get(SCRATCH_VARIABLE)
    try:
        with tempfile.TemporaryDirectory(
            prefix="touchstone-", dir=scratch_directory(), ignore_cleanup_errors=True
        ) as scratch:
            os.environ[SCRATCH_VARIABLE] = os.environ[NOTES_VARIABLE] = scratch
            try:
                yield
            finally:
                say_what_is_left()
    finally:
        for name in (SCRATCH_VARIABLE, NOTES_VARIABLE):
            os.environ.pop(name, None)
        if outer is not None:
            os.environ[SCRATCH_VARIABLE] = outer


def without_aws_variables() -> None:
    """No test talks to a store of the person who runs it: a variable of theirs would win over every option."""
    endpoint.set_aside(os.environ)
    os.environ["AWS_EC2_METADATA_DISABLED"] = "true"
    without_proxies_on_loopback(os.environ)


def _try_stores(this: Run, console: Console) -> None:
    """Start each store once: it proves itself, says what it answers where stores differ, and the engine is tried on
    the first. One that cannot be started, or is refused, is named with the reason and not used."""
    for name in this.options.stores:
        kind = kind_of(name)
        missing = kind.missing()
        version = kind.version() if missing is None else None
        this.stores.append({"name": name, "description": kind.description, "version": version, "skipped": missing})
    ledgers: dict[str, tuple[Entry, ...]] = {}
    for row in this.stores:
        if row["skipped"] is None and not this.faults:
            try:
                with running(row["name"]) as store:
                    answers = store.ledger()
                    if not ledgers:
                        with _given_up_if_silent(this, store, console):
                            _try_engine(this, store, console)
                    ledgers[store.name] = answers
            except StoreUnavailable as reason:
                row["skipped"] = str(reason)
        if row["skipped"] is not None:
            words = f"the store '{row['name']}' cannot be used: {escape(row['skipped'])}"
            console.print(f"[bold cyan]skipped[/]: {words}", highlight=False)
    this.parity = compared({name: entries for name, entries in ledgers.items() if entries})


@contextmanager
def _given_up_if_silent(this: Run, store: Store, console: Console) -> Iterator[None]:
    """What is done before the first test waits for a store no longer than a test does."""

    def give_up(name: str, words: str) -> None:
        this.faults.append(
            {"test": None, "store": name, "message": f"the store '{name}' broke down: {words}", "stderr": ""}
        )
        _give_up(this, console)

    try:
        with watched(lambda: [store], this.options.timeout_seconds, give_up):
            yield
    except StoreIsSilent as silence:
        raise StoreUnavailable(f"it broke down before the first test: {silence}") from None


def _try_engine(this: Run, store: Store, console: Console) -> None:
    """Whether there is an engine to judge: one that says hello, and takes the first requests without breaking down."""
    options = this.options
    try:
        if options.peer is not None:
            Engine.connect(options.peer, env=store.env, timeout_seconds=options.timeout_seconds).close()
        engine = Engine.connect(options.engine, env=store.env, timeout_seconds=options.timeout_seconds)
        try:
            this.hello = engine.hello
            uri = store.fresh_root()
            engine.init(uri, SMALLEST_SCHEMA)
            engine.open(uri).close()
        finally:
            engine.close()
    except (EngineError, Unsupported):
        return  # A typed refusal is an answer: the suites will say which requirement it breaks.
    except AdapterFault as fault:
        silence = store.silence()
        if silence is not None:
            raise StoreUnavailable(f"it broke down before the first test: {silence}") from fault
        this.faults.append({"test": None, "store": None, "message": str(fault), "stderr": fault.stderr})
        return
    console.print(
        f"engine [bold]{escape(engine.hello.name)} {escape(engine.hello.version)}[/], internal schema "
        f"{engine.hello.internal_schema_version}, profile {options.profile}, seed {options.seed}",
        highlight=False,
    )


def _test_on_each(this: Run, console: Console) -> None:
    """One store after the other, each with the whole selection; a breakdown of one leaves the others."""
    several = len(this.available) > 1
    is_named = len(this.options.stores) > 1
    written: list[Path] = []
    for name in this.available:
        file_name = f"junit-{name}.xml" if several else JUNIT
        junit = None if this.options.report is None else this.options.report / file_name
        goes_on = _test(this, name, console, junit, is_named=is_named)
        written += [] if junit is None else [junit]
        if not goes_on:
            break
    if several and this.options.report is not None:
        join_junit(written, this.options.report / JUNIT)


def _test(this: Run, store: str, console: Console, junit: Path | None, *, is_named: bool) -> bool:
    """Run the suites on a store; whether the next store is to be tried as well."""
    options = this.options

    def give_up() -> None:
        """From another thread: nobody reaches the one that runs the tests, and the other stores are not tried."""
        this.records += progression.finished
        this.there += progression.there
        this.faults += progression.faults
        _give_up(this, console)

    progression = Progression(
        console,
        this.interruption,
        quiet=bool(options.pytest_args),
        store=store if is_named else None,
        give_up=give_up,
    )
    # What else is installed beside this kit has no say in a verdict, and takes time to load.
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    try:
        code = pytest.main(_pytest_args(options, store, junit), plugins=[progression])
    finally:
        this.records += progression.finished
        this.there += progression.there
    found = progression.faults
    if this.interruption.came:
        this.faults += found
        return False
    if code == pytest.ExitCode.USAGE_ERROR and options.pytest_args:
        raise RunUsageError(f"pytest does not understand {shlex.join(options.pytest_args)}")
    goes_on = progression.goes_on
    if code in (pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.USAGE_ERROR) or progression.collect_errors:
        words = "; ".join(progression.collect_errors) or f"pytest ended with {pytest.ExitCode(code).name}"
        found.append(_fault_of_the_run(f"the suites could not be run: {words[-2000:]}"))
        goes_on = False
    if code == pytest.ExitCode.INTERRUPTED and not found:
        this.interruption.told_at = time.monotonic()  # Somebody has left pytest's debugger, or has ended a worker.
        goes_on = False
    this.faults += found
    return goes_on


def _fault_of_the_run(message: str) -> dict[str, Any]:
    return {"test": None, "store": None, "message": message, "stderr": ""}


def _pytest_args(options: RunOptions, store: str, junit: Path | None) -> list[str]:
    args = [str(SUITES), "-c", str(SUITES / "pytest.ini"), "--rootdir", str(SUITES), "-p", "conformance.runner.plugin"]
    if not options.pytest_args:
        args += ["-p", "no:terminal"]  # Who gives options to pytest also wants to see what it says.
    args += ["--touchstone-engine", options.engine, "--touchstone-profile", options.profile]
    if options.peer is not None:
        args += ["--touchstone-peer", options.peer]
    args += ["--touchstone-seed", str(options.seed), "--touchstone-timeout", str(options.timeout_seconds)]
    args += ["--touchstone-store", store]
    if options.operations is not None:
        args += ["--touchstone-operations", str(options.operations)]
    for group in options.suites:
        args += ["--touchstone-suite", group]
    if options.only_test is not None:
        args += ["--touchstone-test", options.only_test]
    if options.known_failing is not None:
        args += ["--touchstone-known-failing", str(options.known_failing.absolute())]
    if junit is not None:
        args += ["--junitxml", str(junit.absolute())]
    if options.workers > 1 and not options.attach:
        args += ["-p", "xdist.plugin", "-n", str(options.workers), "--dist", "worksteal"]
    if options.attach:
        args += ["-s", "--touchstone-attach"]
    return [*args, *options.pytest_args]


def _refuse_unknown_tests(path: Path, known: Sequence[KnownFailure]) -> None:
    """A line that names a test which does not exist would never go stale: it is a mistake in the list."""
    of_tests = [failure for failure in known if failure.requirement is None or failure.tests is not None]
    if not of_tests:
        return
    from conformance.listing import names_of_tests

    names = names_of_tests()
    for failure in of_tests:
        if not any(failure.fits(name) for name in names):
            raise RunUsageError(f"{path}: line {failure.line}: there is no test '{failure.names}'")


def _write(this: Run) -> None:
    assert this.options.report is not None and this.verdict is not None
    directory = this.options.report
    (directory / "traces").mkdir(parents=True, exist_ok=True)
    for stale in (directory / "traces").glob("*.json"):
        stale.unlink()
    write_report(report_of(this, directory), directory)


def report_of(this: Run, directory: Path | None) -> dict[str, Any]:
    """The content of report.json; the traces of failures go to files of their own."""
    assert this.verdict is not None
    hello = this.hello
    return {
        "format": 1,
        "suite_version": importlib.metadata.version(DISTRIBUTION),
        "verdict": this.verdict.name,
        "exit_code": this.verdict.exit_code,
        "because": this.verdict.because,
        "engine": {
            "spec": without_secrets(this.options.engine),
            "name": hello and hello.name,
            "version": hello and hello.version,
            "internal_schema_version": hello and hello.internal_schema_version,
            "capabilities": sorted(hello.capabilities) if hello else [],
        },
        "run": {
            "profile": this.options.profile,
            "seed": this.options.seed,
            "started_at": this.started_at.isoformat(timespec="seconds").replace("+00:00", "Z"),
            "seconds": round(time.monotonic() - this.began, 1),
            "command": this.options.command(),
            "suites": [each.upper() for each in this.options.suites] or None,
            "versions": {
                "python": platform.python_version(),
                **{each: importlib.metadata.version(each) for each in _VERSIONS_OF},
            },
            "platform": f"{platform.system()} {platform.machine()}",
        },
        "stores": this.stores,
        "parity": this.parity,
        "summary": this.verdict.summary,
        "requirements": [
            {**row, "budgets": list(this.budgets.get(row["id"], ()))} for row in this.verdict.requirements
        ],
        "tests": [_test_row(this, record, directory) for record in sorted(this.records, key=lambda each: each.name)],
        "known_failing": None
        if this.options.known_failing is None
        else {"file": str(this.options.known_failing), "lines": list(this.verdict.known)},
        "faults": this.faults,
    }


def _test_row(this: Run, record: TestRecord, directory: Path | None) -> dict[str, Any]:
    phase = record.decisive
    trace = None
    if phase.trace is not None and directory is not None:
        file_name = f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', record.name).strip('-')}.json"
        trace = f"traces/{file_name}"
        write_trace(
            directory / trace,
            phase.trace,
            engine=without_secrets(this.options.engine),
            peer=None if this.options.peer is None else without_secrets(this.options.peer),
            store=record.store,
            seed=this.options.seed,
        )
    return {
        "name": record.name,
        "store": record.store,
        "requirements": list(record.requirements),
        "broke": list(record.broke),
        "outcome": record.outcome,
        "seconds": round(record.seconds, 3),
        "because": phase.because,
        "detail": phase.detail,
        "trace": trace,
        "reason": phase.reason,
    }
