"""The commands of `touchstone` that make faults: sweep, race, storm and pin.

Exit codes are those of a run: 0 nothing is wrong, 1 a requirement was broken, 2 usage, 3 the engine or its adapter
could not run, 4 nothing was tried. What is heavy is imported by the command that needs it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from conformance.adapters import parse
from conformance.consoles import make_console, usage
from conformance.runner.verdict import CONFORMS, FAILS, NOTHING_TESTED
from failpoints.command_ends import (
    EXIT_INTERRUPTED,
    TRACES,
    EngineOption,
    JobsOption,
    PeerOption,
    Refusals,
    StoreOption,
    TimeoutOption,
    TracesOption,
    default_jobs,
    in_words,
    keep_trace,
    names_in,
    progress_line,
    refusals,
    say_rate,
    verdict_of,
)
from failpoints.reporting import FaultReport, RaceReport, SoFar, StormReport, SweepReport, Wrong

# Traces of what is made between an engine and its server.
FAULT_KINDS = ("cut", "pair", "storm")
# Of each pair and direction, where all pairs are run: all of their schedules are thousands.
LIMIT_OF_ALL = 6
# More than anybody waits for: a number beyond is a slip, and would fill the memory before anything is said.
PROCESSES_MAX = 1000
COUNT_MAX = 1_000_000
SEED_MAX = 2**63 - 1


def parse_all(engine: str, peer: str | None) -> None:
    """Refuse engines that cannot be meant before anything is started."""
    for each in (engine, *([] if peer is None else [peer])):
        parse(each)


def sweep_command(
    engine: EngineOption = "reference",
    store: StoreOption = "moto",
    writer: Annotated[
        list[str] | None,
        typer.Option(
            "--writer",
            help="A writer such as merge, or several: load, mutate, branches, merges, schema-apply, maintenance, all "
            "(which is the default). May be repeated.",
        ),
    ] = None,
    every: Annotated[
        bool,
        typer.Option(
            "--every",
            help="Try every cut of several writers too, as of a writer that is named alone. Otherwise, of files in a "
            "row the first and the last are cut, recoveries of related writers that send the same kinds of requests "
            "count as one, and lose answers or are refused only where they decide.",
        ),
    ] = False,
    double: Annotated[
        str,
        typer.Option(
            help="Cuts inside recovery: shapes (once for each sequence of requests that recoveries of the writer make; "
            "two that differ and send the same requests count as one), all (for every cell), or none."
        ),
    ] = "shapes",
    failpoints: Annotated[
        bool,
        typer.Option(
            "--failpoints",
            help="The crash matrix instead: stop each writer and each recovery at every named failpoint, on an engine "
            "that declares the capability. On any store, also local; one process at a time, and no traces.",
        ),
    ] = False,
    peer: PeerOption = None,
    jobs: JobsOption = None,
    traces: TracesOption = TRACES,
    report: SweepReport = None,
    timeout: TimeoutOption = 120.0,
) -> None:
    """Kill a writer at every durable request that it makes, and judge what it leaves."""
    from failpoints.cuts.cell import CellResult
    from failpoints.cuts.show import counts_of, show_cell, summary, tried, unreached, where_of
    from failpoints.cuts.sweep import DOUBLES, SweepOptions, sweep
    from failpoints.cuts.traces import name_of, trace_of
    from failpoints.writers import UnknownWriter, writers_called

    if failpoints:
        if jobs is not None or double != "shapes" or peer is not None or every:
            because = "are for cuts at requests: named failpoints are tried one after the other"
            raise usage(f"--jobs, --every, --double and --peer {because}")
        from failpoints.matrix import UnknownSubject
        from failpoints.named import named_subjects, sweep_named

        with refusals(UnknownSubject):
            parse(engine)
            subjects = named_subjects(names_in(writer))
        words = ["--failpoints", "--writer", ",".join(names_in(writer))]
        with FaultReport(report, "sweep", engine, None, store, words, noun="spots") as kept:
            raise typer.Exit(sweep_named(make_console(), subjects, kept))
    if double not in DOUBLES:
        raise usage(f"--double is one of {', '.join(DOUBLES)}, not '{double}'")
    with refusals(UnknownWriter):
        parse_all(engine, peer)
        writers = writers_called(names_in(writer))
    is_every = every or double == "all" or len(writers) == 1
    words = ["--writer", ",".join(names_in(writer)), *["--every"] * every, "--double", double]
    options = SweepOptions(engine, peer, store, double, every=is_every, timeout_seconds=timeout)
    console = make_console()
    found: list[CellResult] = []
    refused = Refusals(console)

    def so_far() -> SoFar:
        wrong = [Wrong(where_of(result), *result.wrong) for result in found if result.wrong is not None]
        return SoFar(tried(found), counts_of(found), wrong)

    with FaultReport(report, "sweep", engine, peer, store, words, so_far=so_far) as kept:
        with (
            in_words(console) as ended,
            progress_line(console, "cells") as advance,
            closing(sweep(writers, options, jobs=jobs or default_jobs())) as results,
        ):
            for result in results:
                if isinstance(result, CellResult):
                    found.append(result)
                    show_cell(result, console)
                    advance(result.wrong is not None)
                    if result.wrong is not None:
                        keep_trace(traces, name_of(result), trace_of(result), engine, store, console, peer=peer)
                else:
                    refused.add(result)
        if found:
            console.print(summary(found))
            say_rate(console, len(found), "cells", time.monotonic() - kept.began)
            if not is_every:
                console.print("of cuts that are much alike one was tried; --every tries all of them", highlight=False)
        for line in unreached(found):
            console.print(f"[bold yellow]not reached[/] {escape(line)}", highlight=False, soft_wrap=True)
        raise typer.Exit(verdict_of(console, kept, refused, ended))


def race_command(
    engine: EngineOption = "reference",
    store: StoreOption = "moto",
    pairs: Annotated[
        list[str] | None,
        typer.Option("--pairs", help="Names of pairs, or all, the default: two drivers, one held at each request."),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=COUNT_MAX,
            help=f"At most so many schedules of a pair in each direction, those first in which most is decided. By "
            f"default every one of a pair that is named, and {LIMIT_OF_ALL} of each where all are run; 0 is every one.",
        ),
    ] = None,
    processes: Annotated[
        int | None, typer.Option(min=1, max=PROCESSES_MAX, help="A history instead: so many processes write at once.")
    ] = None,
    writes: Annotated[
        int | None,
        typer.Option(min=1, max=COUNT_MAX, help="Of a history: so many calls of each process; 50 by default."),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, max=SEED_MAX, help="Of a history: its seed; 0 by default.")] = None,
    mixed: Annotated[
        bool, typer.Option("--mixed", help="Of a history: branches, merges and optimize as well.")
    ] = False,
    kill_every: Annotated[
        int | None,
        typer.Option(min=1, max=COUNT_MAX, help="Of a history: about one of so many calls has its process killed."),
    ] = None,
    peer: PeerOption = None,
    jobs: JobsOption = None,
    traces: TracesOption = TRACES,
    report: RaceReport = None,
    timeout: TimeoutOption = 120.0,
) -> None:
    """Hold one driver at each of its requests while another does its work; or let many write at once."""
    with refusals():
        parse_all(engine, peer)
    if processes is not None and peer is not None:
        raise usage("--peer is for pairs: the processes of a history are all of one engine")
    if processes is not None and (limit is not None or jobs is not None):
        raise usage("--limit and --jobs are for pairs: the processes of a history are as many as --processes says")
    if processes is None and (mixed or any(each is not None for each in (writes, seed, kill_every))):
        raise usage("--writes, --seed, --mixed and --kill-every are for a history: say with --processes how many write")
    if processes is not None and pairs:
        raise usage("--pairs and --processes are two different races: give one of them")
    console = make_console()
    if processes is not None:
        profile = "mixed" if mixed else "writes"
        shape = (processes, writes or 50, seed or 0, profile, kill_every)
        with FaultReport(report, "history", engine, None, store, _words_of(*shape), noun="writes") as kept:
            raise typer.Exit(_history(console, kept, *shape, traces, timeout))
    from failpoints.pairs.pairs import UnknownPair, pairs_called
    from failpoints.pairs.schedule import ScheduleResult
    from failpoints.pairs.show import show_schedule, where_of
    from failpoints.pairs.sweep import counts_of, seldom_reached, sweep, table_of

    names = names_in(pairs)
    if limit is None and "all" in names:
        limit = LIMIT_OF_ALL
    with refusals(UnknownPair):
        pairs_called(names)
    words = ["--pairs", ",".join(names), *([] if limit is None else ["--limit", str(limit)])]
    found: list[ScheduleResult] = []
    refused = Refusals(console)

    def so_far() -> SoFar:
        wrong = [Wrong(where_of(each), each.ids, each.because) for each in found if each.verdict == "wrong"]
        return SoFar(sum(each.reached for each in found), counts_of(found), wrong)

    swept = sweep(
        engine,
        peer=peer,
        store=store,
        pairs=names,
        limit=limit or None,
        jobs=jobs or default_jobs(),
        timeout_seconds=timeout,
    )
    with FaultReport(report, "race", engine, peer, store, words, noun="schedules", so_far=so_far) as kept:
        with in_words(console) as ended, progress_line(console, "schedules") as advance, closing(swept) as results:
            for result in results:
                if isinstance(result, ScheduleResult):
                    found.append(result)
                    show_schedule(result, console)
                    advance(result.verdict == "wrong")
                    if result.verdict == "wrong" and result.trace is not None:
                        name = f"{result.pair}-{result.held}-{len(found)}"
                        keep_trace(traces, name, result.trace, engine, store, console, peer=peer)
                else:
                    refused.add(result)
        gaps = sum(result.verdict == "gap" for result in found)
        if gaps:
            console.print(f"[bold yellow]known gaps[/] of the format: {gaps} schedules, listed above", highlight=False)
        if found:
            console.print(table_of(found))
            say_rate(console, len(found), "schedules", time.monotonic() - kept.began)
        for line in seldom_reached(found):
            console.print(f"[bold yellow]seldom reached[/] {escape(line)}", highlight=False, soft_wrap=True)
        raise typer.Exit(verdict_of(console, kept, refused, ended))


def _words_of(processes: int, writes: int, seed: int, profile: str, kill_every: int | None) -> list[str]:
    """The options of a history."""
    words = ["--processes", str(processes), "--writes", str(writes), "--seed", str(seed)]
    return words + [*["--mixed"] * (profile == "mixed"), *(["--kill-every", str(kill_every)] if kill_every else [])]


def _history(
    console: Console,
    kept: FaultReport,
    processes: int,
    writes: int,
    seed: int,
    profile: str,
    kill_every: int | None,
    traces: Path,
    timeout: float,
) -> int:
    from conformance.runner.session import without_aws_variables
    from failpoints.histories.history import run_history
    from failpoints.histories.show import lines_of
    from failpoints.histories.telling import Contradiction
    from fixtures.stores.catalog import running

    without_aws_variables()
    engine, store = kept.engine, kept.store
    with in_words(console) as ended, running(store) as place:
        result = run_history(
            engine,
            place,
            processes=processes,
            writes=writes,
            seed=seed,
            profile=profile,
            kill_every=kill_every,
            console=console,
            timeout=timeout,
        )
        verdict = result.verdict
        wrong = [Wrong(f"seed {seed}", result.ids, verdict.because)] if isinstance(verdict, Contradiction) else []
        kept.so_far = lambda: SoFar(processes * writes, {profile: result.counts}, wrong)
    if ended.early:
        return EXIT_INTERRUPTED
    kept.whole = True
    for line in lines_of(result):
        console.print(escape(line), highlight=False, soft_wrap=True)
    if result.trace is not None:
        keep_trace(traces, f"history-seed-{seed}", result.trace, engine, store, console)
    code = CONFORMS if result.holds else FAILS
    if result.holds and not result.counts["acknowledged"]:
        console.print("[bold cyan]nothing was tried[/]: not one write was acknowledged", highlight=False)
        code = NOTHING_TESTED
    return code


def storm_command(
    engine: EngineOption = "reference",
    store: StoreOption = "moto",
    seed: Annotated[int, typer.Option(min=0, max=SEED_MAX, help="What the steps and the weather are drawn from.")] = 0,
    operations: Annotated[int, typer.Option(min=1, max=COUNT_MAX, help="How many operations.")] = 200,
    traces: TracesOption = TRACES,
    report: StormReport = None,
    timeout: TimeoutOption = 120.0,
) -> None:
    """Play random operations while requests fail, hang, get lost, and processes die."""
    from conformance.runner.session import without_aws_variables
    from conformance.sequences.story import line_of, script_of
    from failpoints.storms.storm import StormResult, run_storm
    from failpoints.workshop import workshop

    with refusals():
        parse(engine)
    words = ["--seed", str(seed), "--operations", str(operations)]
    console = make_console()
    result = StormResult(seed)

    def so_far() -> SoFar:
        wrong = [] if result.failure is None else [Wrong(f"seed {seed}", result.failure.ids, result.failure.because)]
        counts = {"weather": result.weathers, "endings": result.endings, "done": result.done}
        return SoFar(result.operations, counts, wrong)

    def played(step: Mapping[str, Any], ending: str) -> None:
        line = f"{line_of(dict(step))}  # {ending}" if ending else line_of(dict(step))
        console.print(escape(line), highlight=False, soft_wrap=True, style="dim")

    with FaultReport(report, "storm", engine, None, store, words, noun="operations", so_far=so_far) as kept:
        without_aws_variables()
        console.print(f"seed {seed}", highlight=False)
        with in_words(console) as ended, workshop(engine, store, timeout_seconds=timeout) as (bench, place):
            run_storm(bench, place, seed=seed, operations=operations, played=played, result=result)
        kept.whole = not ended.early
        if ended.early and result.failure is None:
            raise typer.Exit(EXIT_INTERRUPTED)
        for name, counted in so_far().counts.items():
            said = ", ".join(f"{each} {number}" for each, number in sorted(counted.items()))
            console.print(f"{name}: {said or 'none'}", highlight=False)
        if result.failure is None:
            much = f"{result.operations} operations in {result.graphs} graphs"
            console.print(f"[bold green]holds[/]: {much}", highlight=False)
            raise typer.Exit(CONFORMS)
        console.print(f"[bold red]broke {', '.join(result.failure.ids)}[/]", highlight=False)
        console.print(f"because {escape(result.failure.because)}", highlight=False, soft_wrap=True)
        console.print(f"after these steps:\n{escape(script_of(list(result.failure.steps)))}", highlight=False)
        keep_trace(traces, f"storm-seed-{seed}", result.trace(), engine, store, console, seed=seed)
        raise typer.Exit(FAILS)


def pin_command(
    trace: Annotated[Path, typer.Argument(help="A trace.json.")],
    into: Annotated[Path, typer.Option("--into", help="The folder of the test; it is made if need be.")] = Path(
        "tests"
    ),
    engine: Annotated[
        str | None,
        typer.Option("--engine", help="The engine of the test; by default the one of the trace."),
    ] = None,
    store: Annotated[str | None, typer.Option(help="Where to replay it; by default where it was found.")] = None,
) -> None:
    """Make a regression test of a trace: the trace and a test that replays it, side by side."""
    from conformance.traces import TraceError, read_trace
    from failpoints.pinning import PinError, pin
    from fixtures.stores.catalog import OWN_SERVER, UnknownStore, kind_of

    with refusals(TraceError, PinError, UnknownStore):
        body = read_trace(trace)
        chosen = engine or body["engine"]
        parse(chosen)
        if store is not None and OWN_SERVER not in kind_of(store).capabilities and body["kind"] in FAULT_KINDS:
            raise PinError(f"a fault is made at a server of our own, and '{store}' is none: give --store moto")
        test = pin(trace, into, engine=chosen, store=store)
    words = f"pinned: {test}, on the engine {chosen}\nrun it with: pytest {test}"
    make_console().print(escape(words), highlight=False, soft_wrap=True)
