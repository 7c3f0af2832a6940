"""Where faults are tried: a store, a gate before it, and drivers behind the gate; one of each in every process.

    with workshop("cmd:./my-driver", "moto") as (bench, store): ...

Sweeps are many small trials that do not depend on each other. `swept_in_processes` divides them among processes and
hands the results out as they come. A process that breaks down ends the sweep: what it had not tried would be missing.

An engine whose store is gone does much that looks wrong. So whatever ends the work on a store, and whatever speaks
against an engine, is followed by a question to the store itself (`blaming`, `vouched`): one that is not there is to
blame.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnContext, SpawnProcess
from multiprocessing.queues import Queue
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeVar

from conformance.adapters import AdapterFault, EngineError, Unsupported
from conformance.runner.session import without_aws_variables
from failpoints.drivers import Drivers
from failpoints.gate import Gate, GateError
from failpoints.nursery import quickened
from fixtures.forge import ForgeError
from fixtures.stores.catalog import OWN_SERVER, Store, StoreRefused, StoreUnavailable, kind_of, running

_ENDPOINT: Final = "AWS_ENDPOINT_URL_S3"
_END_SECONDS: Final = 20.0
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class Found(Protocol):
    """What a trial has found."""

    @property
    def accuses(self) -> bool:
        """Whether it says anything against the engine, if only that something could not be tried on it."""
        ...


Task = TypeVar("Task")
Result = TypeVar("Result", bound=Found)


class UnfitStore(ValueError):
    """A store between which and an engine nothing can be cut."""


class SweepBroken(Exception):
    """A sweep that could not go on: the engine's adapter broke down, or a process of the sweep did."""


class WorkerFailed(Exception):
    """What nobody expected in a process of a sweep, with where it was: a mistake of the kit, as in any process."""


class StoreBrokeDown(SweepBroken):
    """The store is gone, and with it whatever was found since."""

    def __init__(self, name: str, silence: str) -> None:
        super().__init__(f"the store '{name}' broke down: {silence}. This says nothing about the engine")


@dataclass(frozen=True)
class Bench:
    """A gate before a store, and drivers behind it.

    `peers` are drivers of the engine that comes after, or in between: another one where two engines share a graph, and
    otherwise the same.
    """

    gate: Gate
    drivers: Drivers
    peers: Drivers


@dataclass(frozen=True)
class Refused:
    """Something that could not be tried, and why: the engine lacks an operation, or its graph could not be made."""

    name: str
    reason: str
    unsupported: bool

    @property
    def accuses(self) -> bool:
        return True


def ask(store: Store) -> None:
    """Ask the store itself whether it is there; `StoreBrokeDown` if it is not."""
    silence = store.silence()
    if silence is not None:
        raise StoreBrokeDown(store.name, silence)


@contextmanager
def blaming(store: Store) -> Iterator[None]:
    """What ends the block: the store, if it is gone, and else whatever it was. There are many ways to say that a store
    does not answer, so that none of them is looked at."""
    try:
        yield
    except StoreBrokeDown:
        raise
    except Exception as error:
        silence = store.silence()
        if silence is None:
            raise
        raise StoreBrokeDown(store.name, silence) from error


def vouched(store: Store, results: Generator[Result, None, None]) -> Generator[Result, None, None]:
    """Results as they come; what speaks against the engine only while the store is there."""
    with closing(results):
        for result in results:
            if result.accuses:
                ask(store)
            yield result


def check_store(name: str) -> None:
    """Refuse a store that has no requests to be cut, before anything is started."""
    kind = kind_of(name)
    if OWN_SERVER not in kind.capabilities:
        why = (
            "a local directory has none" if name == "local" else f"'{name}' is somebody's, and nothing is broken there"
        )
        message = "faults are made, and requests counted, between an engine and an S3 server of our own"
        raise UnfitStore(f"{message}; {why}: give --store moto")
    reason = kind.missing()
    if reason is not None:
        raise StoreUnavailable(f"the store '{name}' cannot run here: {reason}")


@contextmanager
def workshop(
    engine: str,
    store: str,
    *,
    peer: str | None = None,
    timeout_seconds: float = 120.0,
    page_keys: int | None = None,
    more_env: Mapping[str, str] = _NOTHING,
) -> Iterator[tuple[Bench, Store]]:
    """A store, a gate and drivers, until the block ends; if the store ends it, `StoreBrokeDown`.

    `more_env` are variables for the drivers, besides those that lead to the store.
    """
    check_store(store)
    with (
        running(store, page_keys=page_keys) as place,
        blaming(place),
        bench_at(
            replace(place, env={**place.env, **more_env}), engine, peer=peer, timeout_seconds=timeout_seconds
        ) as bench,
    ):
        yield bench, place


@contextmanager
def bench_at(store: Store, engine: str, *, peer: str | None = None, timeout_seconds: float = 120.0) -> Iterator[Bench]:
    """A gate and drivers at a store that is running."""
    with ExitStack() as stack:
        gate = stack.enter_context(Gate(store.env[_ENDPOINT]))

        def drivers_of(spec: str, name: str) -> Drivers:
            process = stack.enter_context(quickened(spec))
            made = Drivers(gate, process, store.env, timeout_seconds=timeout_seconds, name=name)
            return stack.enter_context(made)

        drivers = drivers_of(engine, "driver")
        yield Bench(gate, drivers, drivers if peer is None else drivers_of(peer, "peer"))


def lacking(bench: Bench, needs: Sequence[str]) -> list[str]:
    """Of these operations, those that the engine does not have, or its peer."""
    missing: set[str] = set()
    for drivers in (bench.drivers, bench.peers):
        driver = drivers.take()
        missing.update(each for each in needs if not driver.engine.supports(each))
        drivers.done(driver)
    return [each for each in needs if each in missing]


def swept_in_processes(
    run: Callable[[Bench, Store, Task], Generator[Result, None, None]],
    tasks: Sequence[Task],
    *,
    engine: str,
    store: str,
    jobs: int,
    timeout_seconds: float,
    peer: str | None = None,
    page_keys: int | None = None,
    more_env: Mapping[str, str] = _NOTHING,
) -> Generator[Result, None, None]:
    """The results of all tasks, in the order in which they are ready. `run` is a function of a module."""
    check_store(store)
    make = functools.partial(
        workshop,
        engine,
        store,
        peer=peer,
        timeout_seconds=timeout_seconds,
        page_keys=page_keys,
        more_env=dict(more_env),
    )
    if jobs <= 1:
        with make() as (bench, place):
            for task in tasks:
                yield from vouched(place, run(bench, place, task))
        return
    context = multiprocessing.get_context("spawn")
    waiting = context.Queue()
    for each in (*tasks, *[None] * jobs):
        waiting.put(each)
    workers: list[_Worker] = []
    is_over = False
    try:
        for _ in range(jobs):
            workers.append(_start(context, run, waiting, make))
        yield from _gathered(workers)
        is_over = True
    finally:
        _end(workers, is_over=is_over)
        waiting.close()
        waiting.cancel_join_thread()


@dataclass(frozen=True)
class _Worker:
    """A process of a sweep, and the pipe on which it alone says what it finds: a process that dies closes it."""

    process: SpawnProcess
    says: Connection


def _start(context: SpawnContext, run: Any, waiting: Queue[Any], make: Any) -> _Worker:
    says, tells = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(run, waiting, tells, make))
    with closing(tells), _interrupts_blocked():
        process.start()
    return _Worker(process, says)


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Whoever is started here does not hear of Ctrl-C, which goes to all processes of a terminal at once."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _gathered(workers: Sequence[_Worker]) -> Iterator[Any]:
    working = {worker.says: worker.process for worker in workers}
    missing: list[str] = []
    while working:
        for says in wait(list(working)):
            assert isinstance(says, Connection)
            try:
                kind, value = says.recv()
            except (EOFError, OSError):  # Or in the middle of a message.
                process = working[says]
                process.join(_END_SECONDS)
                raise SweepBroken(f"a process of the sweep ended with {process.exitcode} before its work") from None
            match kind:
                case "result":
                    yield value
                case "done":
                    del working[says]
                case "missing":  # The others do its share.
                    del working[says]
                    missing.append(value)
                    if len(missing) == len(workers):
                        raise StoreUnavailable(value)
                case "refused":
                    raise StoreUnavailable(value)
                case "broken":
                    raise SweepBroken(value)
                case "mistaken":
                    raise WorkerFailed(value)


def _end(workers: Sequence[_Worker], *, is_over: bool) -> None:
    """Let processes that are done leave by themselves, and end the others."""
    for process in (worker.process for worker in workers):
        if is_over:
            process.join(_END_SECONDS)
        if process.is_alive():
            process.terminate()
    for worker in workers:
        worker.process.join(_END_SECONDS)
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()
        worker.says.close()


def _leave(*_: object) -> None:
    raise SystemExit(0)


def _work(
    run: Callable[[Bench, Store, Any], Generator[Any, None, None]],
    waiting: Queue[Any],
    tells: Connection,
    make: Callable[[], AbstractContextManager[tuple[Bench, Store]]],
) -> None:
    """The program of one process of a sweep."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The process that gathers decides when it ends.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    signal.signal(signal.SIGTERM, _leave)
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    without_aws_variables()
    try:
        with _started(make) as (bench, place):
            while (task := waiting.get()) is not None:
                for result in vouched(place, run(bench, place, task)):
                    tells.send(("result", result))
        tells.send(("done", None))
    except BrokenPipeError:
        pass  # Nobody listens any more.
    except _StoreMissing as reason:
        tells.send(("refused" if reason.is_refused else "missing", str(reason)))
    except (AdapterFault, EngineError, Unsupported, StoreUnavailable, SweepBroken, ForgeError, GateError) as fault:
        tells.send(("broken", str(fault)))
    except Exception:
        tells.send(("mistaken", traceback.format_exc()))


class _StoreMissing(Exception):
    """The store of a process did not start, or was refused: nothing has been done yet."""

    def __init__(self, reason: StoreUnavailable) -> None:
        super().__init__(str(reason))
        self.is_refused = isinstance(reason, StoreRefused)


@contextmanager
def _started(make: Callable[[], AbstractContextManager[tuple[Bench, Store]]]) -> Iterator[tuple[Bench, Store]]:
    with ExitStack() as stack:
        try:
            made = stack.enter_context(make())
        except StoreUnavailable as reason:
            raise _StoreMissing(reason) from reason
        yield made


def _end_with_the_parent() -> None:
    """Whoever gathers may be killed, and can tell nobody then."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(_END_SECONDS)
    os._exit(1)
