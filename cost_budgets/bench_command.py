"""`touchstone bench`: ratios against bare pylance, kept as a history, and held against an earlier run.

Exit codes: 0 measured, and not slower where it was compared; 1 slower beyond the noise; 2 usage; 3 the engine or its
adapter could not run, or the store broke down.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from conformance.adapters import InvalidEngineSpec, parse
from conformance.consoles import make_console, usage
from conformance.runner.verdict import CONFORMS, FAILS
from failpoints.command_ends import EngineOption, in_words
from fixtures.stores.catalog import STORES, kind_of, running

if TYPE_CHECKING:
    from cost_budgets.benching import BenchRun

HISTORY: Final = Path("benchmarks.jsonl")
EXIT_INTERRUPTED: Final = 130


def bench_command(
    engine: EngineOption = "reference",
    store: Annotated[str, typer.Option("--store", help=f"One of {', '.join(STORES)}.")] = "local",
    rounds: Annotated[int, typer.Option(min=3, help="How often each operation is timed.")] = 20,
    history: Annotated[Path, typer.Option(help="Earlier runs, one JSON object a line; this one is added.")] = HISTORY,
    compare: Annotated[bool, typer.Option("--compare", help="Hold this run against the last saved ones.")] = False,
) -> None:
    """Time operations as ratios to bare pylance in the same run."""
    from conformance.runner.session import without_aws_variables
    from cost_budgets.benching import bench, elsewhere, read_history, save, usual
    from failpoints.workshop import blaming

    console = make_console()
    with in_words(console) as ended:
        try:
            parse(engine)
            kind_of(store)
            history_before = read_history(history)
        except (InvalidEngineSpec, ValueError, OSError) as error:
            raise usage(str(error)) from None
        without_aws_variables()
        with running(store) as place, blaming(place):
            run = bench(engine, place, rounds=rounds)
    if ended.early:
        raise typer.Exit(EXIT_INTERRUPTED)
    then = usual(history_before, run) if compare else None
    console.print(_table(run, then))
    code = _compared(console, run, then, elsewhere(history_before, run)) if compare else CONFORMS
    if code == CONFORMS:
        try:
            save(history, run)
        except OSError as error:
            raise usage(f"{history} cannot be written: {error.strerror}") from None
        console.print(f"{run.engine} on {run.store}, {rounds} rounds; added to {history}", highlight=False)
    else:
        # The next run is to be held against what was fast, and not against this.
        console.print(f"{run.engine} on {run.store}, {rounds} rounds; not added to {history}", highlight=False)
    raise typer.Exit(code)


def _compared(console: Console, run: BenchRun, then: BenchRun | None, other: Sequence[str]) -> int:
    from cost_budgets.benching import differences

    if then is None and other:
        # A ratio to bare Lance is not the same on another machine, nor with another Lance: this is nobody's fault.
        console.print(f"not compared, measured elsewhere: {escape('; '.join(other))}", highlight=False, soft_wrap=True)
        return CONFORMS
    if then is None:
        console.print("no earlier run of this engine on this store: the next one can be held against this")
        return CONFORMS
    slower = [each.name for each in differences(run, then) if each.slower]
    words = f"[bold red]slower[/] than usual: {', '.join(slower)}" if slower else "[bold green]not slower[/]"
    console.print(words, highlight=False, soft_wrap=True)
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
            cells += [was, f"{found.allowed:.0%}", "slower" if found.slower else "new" if found.then is None else "ok"]
        table.add_row(*cells)
    return table
