"""`touchstone cost`: what an engine's operations cost on S3, held against budgets.

Exit codes are those of a run: 0 within the budgets, 1 over them, 2 usage, 3 the engine, its adapter or the store broke
down, or an operation could not be measured, 4 nothing was measured.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from conformance.adapters import InvalidEngineSpec, parse
from conformance.consoles import make_console, usage
from conformance.runner.verdict import CONFORMS, COULD_NOT_RUN, FAILS, NOTHING_TESTED
from failpoints.command_ends import EngineOption, StoreOption, TimeoutOption, in_words

if TYPE_CHECKING:
    from cost_budgets.judging import Line
    from cost_budgets.measuring import Measured
    from fixtures.stores.catalog import Store

_PROFILES: Final = ("full", "quick")


def cost_command(
    engine: EngineOption = "reference",
    store: StoreOption = "moto",
    profile: Annotated[str, typer.Option(help=f"How deep the graphs get: {' or '.join(_PROFILES)}.")] = "full",
    operation: Annotated[
        list[str] | None, typer.Option("--operation", help="An operation; may be repeated. By default all.")
    ] = None,
    budgets: Annotated[Path | None, typer.Option(help="Other budgets than the kit's own.")] = None,
    report: Annotated[Path | None, typer.Option(help="A folder for cost.html, with curves, and cost.json.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the measurements as JSON instead of a table.")] = False,
    timeout: TimeoutOption = 120.0,
) -> None:
    """Count the requests of every operation at several depths, and hold them against budgets."""
    from conformance.runner.redaction import without_secrets
    from conformance.runner.session import without_aws_variables
    from cost_budgets.budgets import BUDGETS, BudgetError, read_budgets
    from cost_budgets.judging import judge
    from cost_budgets.measuring import PAGE_KEYS, PROFILES, Measured, counting, measure
    from cost_budgets.operations import OPERATIONS
    from cost_budgets.reporting import report_of, table_of, write_report
    from cost_budgets.yardstick import beside, yardstick_table

    if profile not in PROFILES:
        raise usage(f"--profile is {' or '.join(PROFILES)}, not '{profile}'")
    unknown = [name for name in operation or () if name not in OPERATIONS]
    if unknown:
        raise usage(f"there is no operation '{unknown[0]}'; there are {', '.join(OPERATIONS)}")
    try:
        parse(engine)
        known = read_budgets(budgets or BUDGETS)
    except (InvalidEngineSpec, BudgetError) as error:
        raise usage(str(error)) from None
    without = [name for name in operation or () if name not in known]
    if without:
        raise usage(f"{budgets} has no budget for '{without[0]}'; it has some for {', '.join(known)}")
    chosen = list(dict.fromkeys(operation or known))
    console = make_console()
    # What is printed as JSON is for a program: everything else goes where a person looks.
    words = Console(stderr=True) if as_json else console
    without_aws_variables()
    found = Measured()
    with (
        in_words(words) as ended,
        _progress(words) as told,
        _store(store, PAGE_KEYS) as place,
        counting(place, engine, timeout_seconds=timeout) as bench,
    ):
        found = measure(bench, place, PROFILES[profile], names=chosen, told=told)
    if ended.early:
        raise typer.Exit(130)
    lines = judge(found, known)
    wrong = [line for line in lines if line.verdict != "ok"]
    said = _said(found, lines, wrong)
    whole: dict[str, Any] = report_of(
        found, lines, engine=without_secrets(engine), store=store, profile=profile, verdict_words=said
    )
    if as_json:
        typer.echo(json.dumps(whole))
    else:
        console.print(table_of(lines))
        if beside(found):
            console.print(yardstick_table(beside(found)))
    for name, why in found.unsupported.items():
        words.print(f"[bold magenta]unsupported[/] {name}: {escape(why)}", highlight=False, soft_wrap=True)
    for name, why in found.failed.items():
        words.print(f"[bold red]could not be measured[/] {name}: {escape(why)}", highlight=False, soft_wrap=True)
    for name, what in whole["unclassified"].items():
        words.print(f"[bold yellow]unclassified[/] {name}: {escape(what)}", highlight=False, soft_wrap=True)
    if report is not None:
        try:
            page = write_report(report, whole, lines)
        except OSError as error:
            raise usage(f"the report cannot be written to {report}: {error.strerror}") from None
        words.print(f"report: {page}", highlight=False, soft_wrap=True)
    if not lines and not found.failed:
        words.print("[bold cyan]nothing was measured[/] that has a budget", highlight=False)
        raise typer.Exit(NOTHING_TESTED)
    for line in wrong:
        guards = ", ".join(known[line.operation].guards)
        words.print(
            f"[bold red]{line.verdict}[/] {line.operation}, {line.ground}: {line.measure} {line.values} against "
            f"{line.formula} [{guards}]".replace(f"[{guards}]", rf"\[{guards}]"),
            highlight=False,
            soft_wrap=True,
        )
    style = "green" if whole["verdict"] == "within" else "red"
    words.print(f"[bold {style}]{whole['verdict']}[/]: {said}", highlight=False)
    # As in every run, 3 comes before 1: what could not be measured says nothing about the engine.
    if found.failed:
        raise typer.Exit(COULD_NOT_RUN)
    raise typer.Exit(FAILS if wrong else CONFORMS)


def _said(found: Measured, lines: Sequence[Line], wrong: Sequence[Line]) -> str:
    """The closing words: how many budgets were held against what was measured, and how much was not."""
    kept = "none held against anything" if not lines else f"{len(wrong)} broken" if wrong else "all kept"
    said = f"{len(lines)} budgets, {kept}"
    if found.unsupported:
        said += f", of what could be measured: {len(found.unsupported)} unsupported"
    if found.failed:
        said += f"; {len(found.failed)} could not be measured"
    return f"{said}."


def _store(name: str, page_keys: int) -> AbstractContextManager[Store]:
    """A store between which and an engine requests can be counted."""
    from failpoints.workshop import check_store
    from fixtures.stores.catalog import running

    check_store(name)
    return running(name, page_keys=page_keys)


@contextmanager
def _progress(console: Console) -> Iterator[Callable[[str], None]]:
    """A line that says what is being measured, on a terminal."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("")
        yield lambda name: progress.update(task, description=name)
