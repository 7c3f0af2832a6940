"""pytest's side of a run: the options, the fixtures of the suites, and what each test proved and broke.

A suite's test asks for fixtures, never for an engine of its own:

    judged      makes graphs that the model follows, and that the auditor reads when the test is over
    engine      the engine under test, to ask it directly
    peers       further processes or sessions of it, also with failpoints armed
    root        an address at which no graph is yet
    forge       damage and crash states, on disk

Every test runs once per store, and its name says so: `test_x[reference-local-core]` is engine, store and capability.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Any, Final, NoReturn

import pytest

from conformance.adapters import AdapterFault, EngineError, Unsupported
from conformance.capabilities import capabilities_of, lacking
from conformance.judge import Case, Engine, JudgedGraph, RequirementBroken
from conformance.judge.broken import running as case_running
from conformance.registry import requirements
from conformance.runner.interruption import heard
from conformance.runner.known import KnownFailure, excuse, read_known_failing
from conformance.runner.profiles import PROFILES, Profile
from conformance.runner.records import PROPERTY, Phase, SuiteTest
from conformance.runner.redaction import words_without_secrets
from conformance.runner.watch import watched
from fixtures.forge import Forge
from fixtures.stores.catalog import OWN_SERVER, SCRATCH_VARIABLE, STORES, Store, StoreRefused, StoreUnavailable, kind_of
from fixtures.stores.catalog import running as store_running

# An engine, a store, and what else a test has in its brackets; of names that begin alike the longest.
_PLACE: Final = re.compile(rf"-({'|'.join(sorted(STORES, key=len, reverse=True))})-(?P<axes>.*)\]$")
# What the fixtures below are to a test that asks for them.
Judged = Callable[..., JudgedGraph]
ForgeOf = Callable[[str], Forge]
Peers = Callable[..., Engine]

CASE = pytest.StashKey[Case]()
ENGINES = pytest.StashKey["Engines"]()
# Stores that run, and of those that were stopped whether they answered to the end.
RUNNING = pytest.StashKey[dict[str, Store]]()
STOPPED = pytest.StashKey[dict[str, str | None]]()
STORE_IS_GONE = pytest.StashKey[str]()
# All tests that the suites have on the stores of this run, also those that it leaves out.
THERE = pytest.StashKey[list[SuiteTest]]()
THERE_OF_A_WORKER: Final = "touchstone_tests"
# Told of a test that hangs with its store, before its process is ended.
LOSE = pytest.StashKey[Callable[[str, Phase], None]]()
SUITES = Path(__file__).parents[1] / "suites"
# The group of tests that make faults between the engine and its store.
FAULTS = "FAULTS"
NOTE: Final = "lost-"


# -- options ---------------------------------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("touchstone", "the engine under test, and where it is tested")
    group.addoption("--touchstone-engine", default="reference", help="cmd:…, python:…:… or reference")
    group.addoption("--touchstone-peer", default=None, help="a second engine on the same graphs, named likewise")
    group.addoption("--touchstone-store", action="append", default=[], help=f"{', '.join(STORES)}; may be repeated")
    group.addoption("--touchstone-profile", default="quick", choices=list(PROFILES), help="how much is done")
    group.addoption("--touchstone-seed", type=int, default=0, help="the seed of the random sequences")
    group.addoption("--touchstone-operations", type=int, default=None, help="random operations, if not the profile's")
    group.addoption("--touchstone-timeout", type=float, default=120.0, help="seconds that an answer may take")
    group.addoption("--touchstone-known-failing", default=None, help="a file with the known failures")
    group.addoption("--touchstone-test", default=None, help="run only this test, as in test_lay_layout.py::test_x")
    group.addoption("--touchstone-attach", action="store_true", help="print each driver's command and wait for Enter")
    group.addoption("--touchstone-suite", action="append", default=[], help="run only these groups, as in LAY or MRG")


def pytest_configure(config: pytest.Config) -> None:
    for line in (
        "requirement(id, ...): ids of the requirements that the test checks",
        "long: takes long; the quick profile takes another where there is one",
        "s3: needs an S3 server; one is started from the package `moto`",
    ):
        config.addinivalue_line("markers", line)
    if hasattr(config, "workerinput"):
        # A worker too leaves its stores as they were, and has its drivers end, when it is told to end.
        listening = ExitStack()
        listening.enter_context(heard())
        config.add_cleanup(listening.close)
    config.stash[RUNNING] = {}
    config.stash[STOPPED] = {}
    config.stash[ENGINES] = Engines(
        config.getoption("--touchstone-engine"),
        config.getoption("--touchstone-timeout"),
        ask_to_attach if config.getoption("--touchstone-attach") else None,
    )


def pytest_unconfigure(config: pytest.Config) -> None:
    if ENGINES in config.stash:
        config.stash[ENGINES].forget()


def stores_of(config: pytest.Config) -> list[str]:
    return list(dict.fromkeys(config.getoption("--touchstone-store"))) or ["local"]


def profile_of(config: pytest.Config) -> Profile:
    profile = PROFILES[config.getoption("--touchstone-profile")]
    return profile.with_operations(config.getoption("--touchstone-operations"))


# -- which tests -----------------------------------------------------------------------------------------------------


def is_of_a_suite(path: Path) -> bool:
    return path.parent == SUITES


def ids_of(item: pytest.Item | Any) -> tuple[str, ...]:
    """The requirements that a test names, in the order of its markers."""
    return tuple(dict.fromkeys(str(each) for marker in item.iter_markers("requirement") for each in marker.args))


def engine_label(spec: str) -> str:
    """An engine as part of a test's name."""
    return re.sub(r"[^A-Za-z0-9_.]+", ".", spec.partition(" ")[0].replace("cmd:", "cmd.")).strip(".")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "store" in metafunc.fixturenames and is_of_a_suite(Path(metafunc.definition.path)):
        known = [each for each in ids_of(metafunc.definition) if each in requirements()]
        capability = "+".join(capabilities_of(known))
        label = engine_label(metafunc.config.getoption("--touchstone-engine"))
        names = stores_of(metafunc.config)
        metafunc.parametrize(
            "store", names, indirect=True, scope="session", ids=[f"{label}-{name}-{capability}" for name in names]
        )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the profile or the selection of groups leaves out; name what no requirement stands behind.

    What there was before is remembered: a known failure is not stale as long as a test of it was left out. To remember
    costs nothing here, where all tests are collected anyway, and knows each of them with its store and its axes.
    """
    config.stash[THERE] = [
        SuiteTest(short_name(item.nodeid), store_of(item), ids_of(item)) for item in items if _can_run(item)
    ]
    groups = {each.upper() for each in config.getoption("--touchstone-suite")}
    only = _only(config.getoption("--touchstone-test"), [short_name(item.nodeid) for item in items])
    profile = profile_of(config)
    kept: list[pytest.Item] = []
    dropped: list[pytest.Item] = []
    for item in items:
        if is_of_a_suite(item.path):
            _refuse_unnamed(item)
            own = {group_of(each) for each in ids_of(item)} | {group_of_file(item.path)}
            chosen = groups & own if groups else own
            if group_of_file(item.path) == FAULTS:
                chosen = groups & {FAULTS}  # They take their time, and an S3 store: only who asks for them gets them.
            chosen = chosen if only is None or short_name(item.nodeid) in only else set()
            if not chosen:
                dropped.append(item)
                continue
        kept.append(item)
    if not profile.all_examples:
        chosen_ones = _fewest(kept)
        dropped += [item for item in kept if item not in chosen_ones]
        kept = [item for item in kept if item in chosen_ones]
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = kept


def _only(meant: str | None, names: list[str]) -> set[str] | None:
    """The tests that are meant by one of them, which may have run on another engine and store: that of the same axes,
    or all of the function if there is none with these."""
    if meant is None:
        return None
    function = meant.partition("[")[0]
    of_function = {name for name in names if name.partition("[")[0] == function}
    return {name for name in of_function if _own_axes(name) == _own_axes(meant)} or of_function


def _own_axes(name: str) -> str:
    """What stands in the brackets after the engine and the store."""
    found = _PLACE.search(name.partition("[")[2])
    return name if found is None else found["axes"]


def _can_run(item: pytest.Item) -> bool:
    """Whether it is a test of the suites, and not one of faults on a store that has no requests of our own."""
    if not is_of_a_suite(item.path):
        return False
    name = store_of(item)
    return group_of_file(item.path) != FAULTS or name is None or OWN_SERVER in kind_of(name).capabilities


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker collects for itself: what there was goes to the process that has started it."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[THERE_OF_A_WORKER] = [(*vars(each).values(),) for each in session.config.stash.get(THERE, [])]


def _fewest(items: list[pytest.Item]) -> set[pytest.Item]:
    """For each store, few tests that together name all that the tests name: always the one that names most of what is
    not yet named, the first of several, and a long one only if nothing else does. Tests of the project itself, and
    sequences, which name what they do not choose, all stay."""
    chosen = {item for item in items if not is_of_a_suite(item.path) or group_of_file(item.path) == "SEQ"}
    for store_name in dict.fromkeys(map(store_of, items)):
        left = [item for item in items if store_of(item) == store_name and item not in chosen]
        left.sort(key=lambda item: item.get_closest_marker("long") is not None)
        named: set[str] = set()
        while left:
            best = max(left, key=lambda item: len(set(ids_of(item)) - named))
            if not set(ids_of(best)) - named:
                break
            chosen.add(best)
            named.update(ids_of(best))
            left.remove(best)
    return chosen


def store_of(item: pytest.Item) -> str | None:
    callspec = getattr(item, "callspec", None)
    return None if callspec is None else callspec.params.get("store")


def group_of(requirement: str) -> str:
    return requirement.partition("-")[0]


def group_of_file(path: Path) -> str:
    """The group in a file's name: `test_lay_layout.py` is LAY."""
    return path.name.split("_")[1].upper()


def _refuse_unnamed(item: pytest.Item) -> None:
    ids = ids_of(item)
    unknown = [each for each in ids if each not in requirements()]
    if not ids:
        raise pytest.UsageError(f"{item.nodeid} names no requirement")
    if unknown:
        raise pytest.UsageError(f"{item.nodeid} names {', '.join(unknown)}, which no requirement is called")


# -- engines and stores ----------------------------------------------------------------------------------------------


class Engines:
    """The engines of one worker: one per store, connected when it is first needed and again after it broke down."""

    def __init__(self, spec: str, timeout_seconds: float, attach: Callable[[str], None] | None) -> None:
        self.spec = spec
        self.timeout_seconds = timeout_seconds
        self.attach = attach
        self._by_store: dict[str, Engine] = {}
        self._stores: dict[str, Store] = {}

    def on(self, store: Store) -> Engine:
        self._stores[store.name] = store
        if store.name not in self._by_store:
            self._by_store[store.name] = self.another(store)
        return self._by_store[store.name]

    def another(self, store: Store, *, failpoints: str | None = None) -> Engine:
        return Engine.connect(
            self.spec,
            env=store.env,
            timeout_seconds=self.timeout_seconds,
            failpoints=failpoints,
            attach=self.attach,
        )

    def declares(self, op: str) -> bool:
        return any(engine.supports(op) for engine in self._by_store.values())

    def may_lack(self, op: str) -> bool:
        return any(engine.may_lack(op) for engine in self._by_store.values())

    def tidy(self) -> None:
        """After a test: close what it has opened, and remove what it has written."""
        for name, engine in list(self._by_store.items()):
            try:
                engine.close_handles()
            except AdapterFault:
                del self._by_store[name]  # Nobody was judged by it; the next test begins with a new one.
        for store in self._stores.values():
            store.discard()

    def forget(self) -> None:
        """After a fault nobody knows what the driver does next: begin anew."""
        for engine in self._by_store.values():
            engine.close()
        self._by_store.clear()


def ask_to_attach(words: str) -> None:
    """Say which process it is, and wait until the person who wants to attach a debugger is ready."""
    print(words, file=sys.stderr, flush=True)
    input("attach now; Enter goes on: ")


@pytest.fixture(scope="session")
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    """Where the graphs of this test are; the name is part of the test's."""
    started, stopped = request.config.stash[RUNNING], request.config.stash[STOPPED]
    with ExitStack() as stack:
        try:
            running = stack.enter_context(store_running(request.param))
        except Exception as error:
            # Every test that is to run there hears of it, and to none of them it is the engine's doing.
            stopped[request.param] = f"it could not be started ({type(error).__name__}: {error})"
            raise
        started[running.name] = running
        yield running
        # The last test is told from its store's end only here: both come before what the test left is reported.
        del started[running.name]
        stopped[running.name] = running.silence()


@pytest.fixture
def engine(request: pytest.FixtureRequest, store: Store) -> Engine:
    """The engine under test. One that lacks an optional capability of the test's requirements is not asked."""
    engine = request.config.stash[ENGINES].on(store)
    capabilities = capabilities_of(ids_of(request.node))
    missing = lacking(capabilities, engine.hello.capabilities)
    if missing and capabilities != ("core",):
        raise Unsupported(", ".join(sorted(missing)), "the engine does not declare it")
    return engine


@pytest.fixture
def peers(request: pytest.FixtureRequest, store: Store) -> Iterator[Peers]:
    """Further engines on the same store, closed when the test is over: `peers()`, `peers(failpoints="x=error")`."""
    started: list[Engine] = []

    def start(*, failpoints: str | None = None) -> Engine:
        engines = request.config.stash[ENGINES]
        if failpoints is not None and not engines.on(store).supports("failpoints"):
            raise Unsupported("failpoints", "the engine does not declare it")
        started.append(engines.another(store, failpoints=failpoints))
        return started[-1]

    yield start
    for each in reversed(started):
        each.close()


@pytest.fixture
def peer(request: pytest.FixtureRequest, store: Store) -> Iterator[Engine | None]:
    """The second engine of this run, on the same store, where there is one."""
    spec = request.config.getoption("--touchstone-peer")
    if spec is None:
        yield None
        return
    timeout = request.config.getoption("--touchstone-timeout")
    engine = Engine.connect(spec, env=store.env, timeout_seconds=timeout)
    try:
        yield engine
    finally:
        engine.close()


@pytest.fixture(scope="session")
def bench(request: pytest.FixtureRequest, store: Store) -> Iterator[Any]:
    """A gate before the store, and drivers of the engine behind it, for tests that make faults."""
    from failpoints.workshop import bench_at

    config = request.config
    engine, timeout = config.getoption("--touchstone-engine"), config.getoption("--touchstone-timeout")
    with bench_at(store, engine, timeout_seconds=timeout) as made:
        yield made


@pytest.fixture
def root(store: Store) -> str:
    """An address at which no graph is yet."""
    return store.fresh_root()


@pytest.fixture
def forge(store: Store) -> ForgeOf:
    """Damage and crash states of a graph: `forge(graph.uri)`."""
    return lambda uri: Forge(uri, dict(store.env))


@pytest.fixture
def judged(request: pytest.FixtureRequest, engine: Engine, store: Store) -> Iterator[Judged]:
    """Makes judged graphs: `judged(schema, records)`. The auditor reads each when the test is over.

    A test that damages a graph on purpose says so: `graph.audited = False`.
    """
    made: list[JudgedGraph] = []

    def make(schema: str, records: Any = None, **options: Any) -> JudgedGraph:
        graph = JudgedGraph.init(engine, store.fresh_root(), store.env, schema)
        made.append(graph)
        if records is not None:
            graph.load(records, **options)
        return graph

    yield make
    for graph in made:
        if graph.audited and STORE_IS_GONE not in request.node.stash:
            graph.audit()


# -- what happened ---------------------------------------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    if not is_of_a_suite(item.path):
        return (yield)
    item.stash[CASE] = Case(short_name(item.nodeid), ids_of(item))
    with case_running(item.stash[CASE]):
        answer = yield
    item.config.stash[ENGINES].tidy()
    return answer


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    with _patience(item):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    with _patience(item):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    with _patience(item):
        return (yield)


def _patience(item: pytest.Item) -> AbstractContextManager[None]:
    """A phase of a test waits for its store as long as for an answer of its engine, and a bounded time on top."""
    if CASE not in item.stash:
        return nullcontext()

    def lose(store_name: str, words: str) -> None:
        case = item.stash[CASE]
        because = f"the store '{store_name}' broke down: {words}"
        phase = Phase("store_fault", store_name, case.ids, tuple(sorted(case.proved)), because=because)
        item.config.stash.get(LOSE, leave_note)(case.name, phase)

    running = item.config.stash[RUNNING]
    return watched(lambda: list(running.values()), item.config.getoption("--touchstone-timeout"), lose)


def leave_note(name: str, phase: Phase) -> NoReturn:
    """End a worker whose main thread can be reached by nobody. Whoever has started it finds out why."""
    folder = os.environ.get(SCRATCH_VARIABLE)
    if folder is not None:
        note = Path(folder, f"{NOTE}{os.getpid()}.json")
        note.write_text(json.dumps({"test": name, "phase": phase.to_text()}), encoding="utf-8")
    os._exit(1)


def phase_in_notes(name: str) -> Phase | None:
    """What a worker that has ended in the middle of this test has left to say."""
    folder = os.environ.get(SCRATCH_VARIABLE)
    for note in [] if folder is None else Path(folder).glob(f"{NOTE}*.json"):
        left = json.loads(note.read_text(encoding="utf-8"))
        if left["test"] == name:
            return Phase.from_text(left["phase"])
    return None


def short_name(nodeid: str) -> str:
    """A test as reports and lists of known failures name it: file and function, without folders."""
    path, _, rest = nodeid.partition("::")
    return f"{path.rpartition('/')[2]}::{rest}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if CASE not in item.stash:
        return report
    phase = _phase(item, call, report)
    if phase.outcome in ("failed", "fault"):
        phase = _blamed_on_the_store(item, call, phase)
    if phase.outcome == "store_fault":
        # Every other test would wait for a store that is gone.
        item.stash[STORE_IS_GONE] = phase.because or ""
        item.session.shouldstop = phase.because or "the store broke down"
    if phase.outcome == "failed":
        phase = _excused(item, phase)
    if phase.outcome in ("fault", "store_fault"):
        item.config.stash[ENGINES].forget()
    if phase.outcome in ("unsupported", "known_failing", "skipped") and report.outcome == "failed":
        report.outcome = "skipped"
        reason = phase.reason or phase.because or phase.outcome
        if phase.outcome == "known_failing":
            report.wasxfail = f"known failing: {reason}"
        else:
            report.longrepr = (str(item.path), item.location[1] or 0, f"Skipped: {reason}")
    if isinstance(phase.detail, str) and (said := words_without_secrets(phase.detail)) != phase.detail:
        report.longrepr = said  # It goes into the JUnit file as it is.
    report.user_properties.append((PROPERTY, phase.to_text()))
    return report


def _phase(item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport) -> Phase:
    case = item.stash[CASE]
    known: dict[str, Any] = {"store": store_of(item), "requirements": case.ids, "proved": tuple(sorted(case.proved))}
    if call.excinfo is None:
        return Phase("passed", **known)
    error = call.excinfo.value
    detail = str(report.longrepr) if report.longrepr is not None else None
    if report.outcome == "skipped":
        return Phase("skipped", reason=str(getattr(error, "msg", error)), **known)
    if isinstance(error, AdapterFault):
        return Phase("fault", because=str(error), stderr=error.stderr, detail=detail, **known)
    if isinstance(error, Unsupported) and _may_lack(item, error.op):
        return Phase("unsupported", reason=str(error), **known)
    own = error.ids if isinstance(error, RequirementBroken) else ()
    broke = tuple(sorted({*own, *case.broke})) or case.blamed()
    because = _because(error)
    return Phase("failed", broke=broke, because=because, detail=detail, trace=_trace(item, broke, because), **known)


def _blamed_on_the_store(item: pytest.Item, call: pytest.CallInfo[None], phase: Phase) -> Phase:
    """A failure on a store that does not answer us either is none of the engine's."""
    error = None if call.excinfo is None else call.excinfo.value
    if isinstance(error, StoreRefused):
        # It was fit when the run began, so this is no refusal.
        silence: str | None = f"it can do no longer what it could before: {error.tried}: {error.happened}"
    elif isinstance(error, StoreUnavailable):
        silence = str(error)
    else:
        name = phase.store or ""
        running = item.config.stash[RUNNING].get(name)
        silence = item.config.stash[STOPPED].get(name) if running is None else running.silence()
    if silence is None:
        return phase
    if phase.store in item.config.stash[RUNNING]:
        item.config.stash[RUNNING][phase.store].give_up(silence)
    because = f"the store '{phase.store}' broke down: {silence}"
    return Phase("store_fault", phase.store, phase.requirements, phase.proved, because=because, detail=phase.detail)


def _may_lack(item: pytest.Item, op: str) -> bool:
    """Whether an engine may say that it has no such operation: not one of the core, and not one that it declared.

    Of those, it may lack the forms that it has named.
    """
    if op == "failpoints" or item.config.stash[ENGINES].may_lack(op):
        return True
    is_optional = capabilities_of(item.stash[CASE].ids) != ("core",)
    return is_optional and not item.config.stash[ENGINES].declares(op)


def _because(error: BaseException) -> str:
    if isinstance(error, RequirementBroken):
        return error.because
    if isinstance(error, EngineError):
        return f"the engine refused what it should do: {error}"
    if isinstance(error, Unsupported):
        return f"the engine lacks what every engine must have, or what it said that it has: {error}"
    if isinstance(error, AssertionError):
        return str(error).split("\nassert ")[0] or "an assertion of the test does not hold"
    return f"{type(error).__name__}: {error}"


def _trace(item: pytest.Item, broke: tuple[str, ...], because: str) -> dict[str, Any]:
    case = item.stash[CASE]
    sequence = {"because": because} if case.sequence is None else case.sequence
    return {"test": case.name, "broke": list(broke), "operations": case.operations[-200:], **sequence}


def _excused(item: pytest.Item, phase: Phase) -> Phase:
    reason = excuse(known_failures(item.config), item.stash[CASE].name, phase.broke, phase.store)
    return phase if reason is None else Phase(**{**vars(phase), "outcome": "known_failing", "reason": reason})


_KNOWN = pytest.StashKey[tuple[KnownFailure, ...]]()


def known_failures(config: pytest.Config) -> tuple[KnownFailure, ...]:
    """The list of known failures of this run, read once."""
    if _KNOWN not in config.stash:
        path = config.getoption("--touchstone-known-failing")
        config.stash[_KNOWN] = () if path is None else read_known_failing(Path(path))
    return config.stash[_KNOWN]
