"""`touchstone bench`: ratios against bare pylance, kept as a history, and held against an earlier run.

Exit codes: 0 measured, and not slower where it was compared; 1 slower beyond the noise; 2 usage; 3 the engine or its
adapter could not run, or the store broke down; 4 nothing was measured, or nothing compared that was to be. Of several
stores the worst counts: 3, then 1, then 4.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from conformance.adapters import InvalidEngineSpec, parse
from conformance.consoles import make_console, usage
from conformance.runner.verdict import CONFORMS, COULD_NOT_RUN, FAILS, NOTHING_TESTED
from failpoints.command_ends import EngineOption, TimeoutOption, in_words
from fixtures.stores.catalog import STORES, StoreUnavailable, kind_of, running

if TYPE_CHECKING:
    from cost_budgets.benching import BenchRun

HISTORY: Final = Path("benchmarks.jsonl")
EXIT_INTERRUPTED: Final = 130


def bench_command(
    engine: EngineOption = "reference",
    store: Annotated[
        list[str] | None,
        typer.Option("--store", help=f"One of {', '.join(STORES)}; may be repeated. By default local."),
    ] = None,
    rounds: Annotated[int, typer.Option(min=3, help="How often each operation is timed.")] = 20,
    history: Annotated[Path, typer.Option(help="Earlier runs, one JSON object a line; this one is added.")] = HISTORY,
    compare: Annotated[bool, typer.Option("--compare", help="Hold this run against the last saved ones.")] = False,
    timeout: TimeoutOption = 120.0,
) -> None:
    """Time operations as ratios to bare pylance in the same run."""
    from conformance.runner.session import without_aws_variables
    from cost_budgets.at_stores import check_file, names_of, worst_of
    from cost_budgets.benching import read_history

    console, codes = make_console(), list[int]()
    stores = names_of(store, "local")
    with in_words(console) as ended:
        try:
            parse(engine)
            for name in stores:
                kind_of(name)
            check_file(history)
            before = read_history(history)
        except (InvalidEngineSpec, ValueError) as error:
            raise usage(str(error)) from None
        without_aws_variables()
        for name in stores:
            codes.append(_bench_at(console, name, engine, rounds, timeout, history, before if compare else None))
    if ended.early:
        raise typer.Exit(EXIT_INTERRUPTED)
    raise typer.Exit(worst_of(codes))


def _bench_at(
    console: Console,
    name: str,
    engine: str,
    rounds: int,
    timeout: float,
    history: Path,
    before: Sequence[BenchRun] | None,
) -> int:
    """Time an engine at one store, say what came of it, and keep it; the exit code, if it is the only store.

    It is held against the runs `before`, unless there is nothing to be compared.
    """
    from conformance.runner.redaction import without_secrets
    from cost_budgets.at_stores import BROKEN
    from cost_budgets.benching import TIMED, NotTimed, bench, save, usual
    from cost_budgets.progress import progress_bar
    from failpoints.workshop import blaming

    began = time.monotonic()
    try:
        with (
            progress_bar(f"{without_secrets(engine)} on {name}", len(TIMED)) as told,
            running(name) as place,
            blaming(place),
        ):
            run = bench(engine, place, rounds=rounds, timeout_seconds=timeout, told=told)
    except StoreUnavailable as reason:
        console.print(f"[bold cyan]skipped[/]: {escape(str(reason))}", highlight=False, soft_wrap=True)
        return NOTHING_TESTED
    except NotTimed as reason:
        console.print(f"[bold cyan]nothing was timed[/]: {escape(str(reason))}", highlight=False, soft_wrap=True)
        return NOTHING_TESTED
    except BROKEN as fault:
        console.print(f"[bold red]could not run[/] on {name}: {escape(str(fault))}", highlight=False, soft_wrap=True)
        return COULD_NOT_RUN
    then = None if before is None else usual(before, run)
    took = f", {rounds} rounds, {time.monotonic() - began:.0f} s"
    console.print(f"[bold]{escape(run.engine)} on {run.store}[/]{took}", highlight=False)
    console.print(_table(run, then))
    code = CONFORMS if before is None else _compared(console, run, then, before)
    # The next run is to be held against what was fast, and not against what is slower.
    if code != FAILS:
        try:
            save(history, run)
        except OSError as error:
            raise usage(f"{history} cannot be written: {error.strerror}") from None
    console.print(f"{'not ' if code == FAILS else ''}added to {history}", highlight=False, soft_wrap=True)
    return code


def _compared(console: Console, run: BenchRun, then: BenchRun | None, before: Sequence[BenchRun]) -> int:
    from cost_budgets.benching import differences, elsewhere, timed_otherwise

    def say(words: str) -> None:
        console.print(words, highlight=False, soft_wrap=True)

    if then is None and (places := elsewhere(before, run)):
        # A ratio to bare Lance is not the same on another machine, nor with another Lance: this is nobody's fault.
        say(f"not compared, measured elsewhere: {escape('; '.join(places))}")
        return CONFORMS
    if then is None and (ways := timed_otherwise(before, run)):
        say(f"[bold cyan]not compared[/]: the last run of this engine on this store had {escape('; '.join(ways))}")
        return NOTHING_TESTED
    if then is None:
        say("no earlier run of this engine on this store: the next one can be held against this")
        return CONFORMS
    found = differences(run, then)
    new, slower = [each.name for each in found if each.then is None], [each.name for each in found if each.slower]
    if len(new) == len(found):
        say("[bold cyan]not compared[/]: nothing that was timed now was timed in an earlier run like this")
        return NOTHING_TESTED
    words = f"[bold red]slower[/] than usual: {', '.join(slower)}" if slower else "[bold green]not slower[/]"
    say(words + (f"; not compared: {', '.join(new)}" if new else ""))
    return FAILS if slower else CONFORMS


def _table(run: BenchRun, then: BenchRun | None) -> Table:
    from cost_budgets.benching import differences

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("operation")
    for name in ("times bare Lance", "noise", *(("then", "may rise by", "verdict") if then else ())):
        table.add_column(name, justify="right")
    against = {each.name: each for each in differences(run, then)} if then else {}
    for ratio in run.ratios:
        cells = [ratio.name, f"{ratio.ratio:.2f}", f"{ratio.noise:.0%}"]
        if then:
            found = against[ratio.name]
            was = "-" if found.then is None else f"{found.then:.2f}"
            may = "-" if found.then is None else f"{found.allowed:.0%}"
            cells += [was, may, "slower" if found.slower else "new" if found.then is None else "ok"]
        table.add_row(*cells)
    return table
