"""What the commands that make faults share: their options, how far they are, how they end, and what they keep.

Whatever ends a command that has begun is said in words here, and has an exit code.
"""

from __future__ import annotations

import math
import os
import re
import signal
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from conformance.adapters import AdapterFault, EngineError, InvalidEngineSpec, Unsupported
from conformance.consoles import usage
from conformance.runner.verdict import CONFORMS, COULD_NOT_RUN, FAILS, NOTHING_TESTED
from failpoints.reporting import FaultReport
from fixtures.stores.catalog import OWN_SERVER, STORES, UnknownStore
from fixtures.stores.moto import StoreUnavailable

JOBS_MAX: Final = 256
TIMEOUT_SECONDS_MAX: Final = 86400.0


def a_time(seconds: float) -> float:
    """Refuse what is not a number: it is neither less nor more than a bound, and not every Typer knows that."""
    if math.isnan(seconds):
        raise typer.BadParameter("nan is no time")
    return seconds


EngineOption = Annotated[
    str, typer.Option("--engine", help="cmd:<command line>, python:<module>:<Class>, mutant:<name>, or reference.")
]
PeerOption = Annotated[
    str | None,
    typer.Option("--peer", help="A second engine on the same graph, named like --engine; by default the same one."),
]
StoreOption = Annotated[
    str,
    typer.Option(
        "--store",
        help="An S3 server that the command starts itself: "
        f"{', '.join(name for name, kind in STORES.items() if OWN_SERVER in kind.capabilities)}.",
    ),
]
JobsOption = Annotated[
    int | None,
    typer.Option(
        "--jobs", min=1, max=JOBS_MAX, help="Processes that try at the same time; by default as the cores allow."
    ),
]
TracesOption = Annotated[Path, typer.Option("--traces", help="Where the trace of everything that is wrong is written.")]
TimeoutOption = Annotated[
    float,
    typer.Option(
        "--timeout",
        min=0.1,
        max=TIMEOUT_SECONDS_MAX,
        callback=a_time,
        help="Seconds that one answer of the engine may take.",
    ),
]
TRACES: Final = Path("traces")
EXIT_INTERRUPTED: Final = 130


def default_jobs() -> int:
    return min(os.cpu_count() or 1, 4)


def names_in(given: Iterable[str] | None) -> list[str]:
    return [name for each in given or ["all"] for name in each.split(",") if name]


@contextmanager
def refusals(*more: type[ValueError]) -> Iterator[None]:
    kinds: tuple[type[ValueError], ...] = (InvalidEngineSpec, UnknownStore, *more)
    try:
        yield
    except kinds as error:
        raise usage(str(error)) from None


@dataclass
class Ended:
    """How a command ended: early, if somebody has interrupted it."""

    early: bool = False


@contextmanager
def in_words(console: Console) -> Iterator[Ended]:
    """What ends a command that has begun, in words. Who interrupts it sees what was found until then."""
    from failpoints.gate import GateError
    from failpoints.workshop import SweepBroken, UnfitStore
    from fixtures.forge import ForgeError

    ended = Ended()
    # Who asks this process to end wants its stores, drivers and workers to end too.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler) if _is_main() else None
    try:
        yield ended
    except KeyboardInterrupt:
        ended.early = True
        console.print("[bold yellow]interrupted[/]", highlight=False)
    except (UnknownStore, UnfitStore) as error:
        raise usage(str(error)) from None
    except StoreUnavailable as reason:
        console.print(f"[bold cyan]skipped[/]: {escape(str(reason))}", highlight=False, soft_wrap=True)
        raise typer.Exit(NOTHING_TESTED) from None
    except (AdapterFault, Unsupported, EngineError, SweepBroken, GateError, ForgeError) as fault:
        console.print(f"[bold red]could not run[/]: {escape(str(fault))}", highlight=False, soft_wrap=True)
        raise typer.Exit(COULD_NOT_RUN) from None
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()


class Refusals:
    """What could not be tried, said once for each name."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.unsupported: set[str] = set()
        self.failed: set[str] = set()

    def add(self, refused: Any) -> None:
        known = self.unsupported if refused.unsupported else self.failed
        if refused.name not in known:
            known.add(refused.name)
            word = "[bold magenta]unsupported[/]" if refused.unsupported else "[bold red]could not be tried[/]"
            self._console.print(f"{word} {refused.name}: {escape(refused.reason)}", highlight=False, soft_wrap=True)


@contextmanager
def progress_line(console: Console, noun: str) -> Iterator[Any]:
    """A line that says how far it is, on a terminal."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    counted = {"all": 0, "wrong": 0}
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(f"0 {noun}")

        def advance(is_wrong: bool) -> None:
            counted["all"] += 1
            counted["wrong"] += is_wrong
            progress.update(task, description=f"{counted['all']} {noun}, {counted['wrong']} wrong")

        yield advance


def say_rate(console: Console, number: int, noun: str, seconds: float) -> None:
    rate = number / seconds * 60 if seconds else 0.0
    console.print(f"{number} {noun} in {seconds:.0f} s, {rate:.0f} a minute", highlight=False)


def verdict_of(console: Console, kept: FaultReport, refused: Refusals, ended: Ended) -> int:
    """The end of it, with everything again that is wrong; the exit code."""
    kept.whole = not ended.early
    found, noun = kept.so_far(), kept.noun
    for each in found.wrong:
        line = f"{each.where}: {', '.join(each.broke)}"
        console.print(f"[bold red]wrong[/] {escape(line)}", highlight=False, soft_wrap=True)
    if found.wrong:
        console.print(f"[bold red]wrong[/]: {len(found.wrong)} of {found.tried} {noun}", highlight=False)
        return FAILS
    if ended.early:
        return EXIT_INTERRUPTED
    if refused.failed:
        console.print(f"[bold red]could not run[/]: {', '.join(sorted(refused.failed))}", highlight=False)
        return COULD_NOT_RUN
    if not found.tried:
        console.print(f"[bold cyan]nothing was tried[/]: no {noun}", highlight=False)
        return NOTHING_TESTED
    console.print(f"[bold green]holds[/]: {found.tried} {noun}, none wrong", highlight=False)
    return CONFORMS


def keep_trace(
    directory: Path,
    name: str,
    found: Mapping[str, Any],
    engine: str,
    store: str,
    console: Console,
    *,
    seed: int = 0,
    peer: str | None = None,
) -> None:
    from conformance.runner.redaction import without_secrets
    from conformance.traces import write_trace

    path = directory / f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', name)}.json"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        hidden = None if peer is None else without_secrets(peer)
        write_trace(path, found, engine=without_secrets(engine), peer=hidden, store=store, seed=seed)
    except OSError as error:
        console.print(f"      its trace cannot be written to {path}: {error.strerror}", highlight=False, soft_wrap=True)
    else:
        console.print(f"      trace: {path}", highlight=False, soft_wrap=True)
