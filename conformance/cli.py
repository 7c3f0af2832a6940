"""`touchstone`: the command line of the kit.

    run            judge an engine
    sweep          kill its writers at every request
    race           hold one process while another works; or let many write at once
    storm          random operations in bad weather
    cost           what its operations cost on S3, against budgets
    bench          how long they take, against bare Lance
    smoke          check an adapter, before any verdict on the engine
    replay         repeat a failure from its trace, on any engine
    pin            make a regression test of a trace
    requirements   what is required, and the tests behind each requirement
    audit          read a graph's bytes, whoever wrote it
    doctor         which stores and tools are here

Exit codes: 0 conforms, 1 a requirement failed, 2 usage, 3 the engine, its adapter or a store could not run, 4 nothing
was tested, 5 a known failure did not fail, 130 interrupted.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from conformance.adapters import InvalidEngineSpec, parse
from conformance.audit.cli import audit_command
from conformance.consoles import make_console, usage
from conformance.doctor import doctor_command
from conformance.registry import requirements
from conformance.report.views import COST
from conformance.report.words import words_of
from conformance.runner.plugin import FAULTS
from conformance.runner.profiles import PROFILES
from conformance.runner.session import Run, RunOptions, RunUsageError, leave
from conformance.runner.session import run as run_suites
from conformance.runner.stores import show_stores
from conformance.runner.verdict import CONFORMS, COULD_NOT_RUN
from conformance.smoke import smoke_command
from conformance.traces import TraceError, read_trace
from cost_budgets.bench_command import bench_command
from cost_budgets.commands import cost_command
from failpoints.commands import pin_command, race_command, storm_command, sweep_command
from fixtures.stores.catalog import STORES, UnknownStore

HELP = """Find out whether an OmniGraph storage engine keeps its promises.

Exit codes: 0 conforms, 1 a requirement failed, 2 usage, 3 the engine, its adapter or a store could not run, 4 nothing
was tested, 5 a known failure did not fail, 130 interrupted.
"""
# A traceback that shows the values of variables shows secrets.
app = typer.Typer(
    no_args_is_help=True, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False, help=HELP
)

EngineOption = Annotated[
    str, typer.Option("--engine", help="cmd:<command line>, python:<module>:<Class>, or reference.")
]
PeerOption = Annotated[
    str | None,
    typer.Option("--peer", help="A second engine that takes turns on the same graphs, named like --engine."),
]
StoreOption = Annotated[list[str] | None, typer.Option("--store", help=f"One of {', '.join(STORES)}; may be repeated.")]
SHOWN_FAILURES = 20
SHOWN_NOT_RUN = 5
OPERATIONS_MAX = 1_000_000
SEED_MAX = 2**63 - 1
# Groups that have a word of their own.
SUITE_WORDS = {"SEQUENCES": "SEQ"}


@app.command("run", context_settings={"allow_extra_args": True, "ignore_unknown_options": False})
def run_command(
    context: typer.Context,
    engine: EngineOption = "reference",
    peer: PeerOption = None,
    store: StoreOption = None,
    suite: Annotated[
        list[str] | None,
        typer.Option("--suite", help="A group, as in LAY or MRG, or sequences, or faults; may be repeated."),
    ] = None,
    profile: Annotated[str, typer.Option(help=f"One of {', '.join(PROFILES)}.")] = "default",
    seed: Annotated[int, typer.Option(min=0, max=SEED_MAX, help="The seed of the random sequences.")] = 0,
    operations: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=OPERATIONS_MAX,
            help="Random operations in all, at least; by default as many as the profile has.",
        ),
    ] = None,
    known_failing: Annotated[Path | None, typer.Option(help="A file with the known failures.")] = None,
    report: Annotated[Path | None, typer.Option(help="A directory for report.json, index.html and so on.")] = None,
    timeout: Annotated[
        float, typer.Option(min=0.1, max=86_400, help="Seconds that one answer of the engine may take.")
    ] = 120.0,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes that test at the same time; by default as the cores allow.")
    ] = None,
    attach: Annotated[bool, typer.Option("--attach", help="Print each driver's command and wait for Enter.")] = False,
) -> None:
    """Judge an engine: run the suites on it and say which requirements hold. What follows `--` goes to pytest."""
    console = make_console()
    suites = tuple(SUITE_WORDS.get(each.upper(), each.upper()) for each in suite or (["SEQ"] if peer else []))
    usual = ["moto"] if FAULTS in suites else ["local"]
    stores = tuple(dict.fromkeys(name for each in store or usual for name in each.split(",")))
    options = RunOptions(
        engine=engine,
        peer=peer,
        stores=stores,
        suites=suites,
        profile=profile,
        seed=seed,
        operations=operations,
        known_failing=known_failing,
        report=report,
        timeout_seconds=timeout,
        workers=workers or default_workers(profile),
        attach=attach,
        pytest_args=tuple(context.args),
    )
    if profile not in PROFILES:
        raise usage(f"there is no profile '{profile}'; there are {', '.join(PROFILES)}")
    try:
        parse(engine)
        if peer is not None:
            parse(peer)
        this = run_suites(options, console, show, guarding_budgets())
    except (InvalidEngineSpec, UnknownStore, RunUsageError) as error:
        raise usage(str(error)) from None
    assert this.verdict is not None
    if any(fault["store"] is not None for fault in this.faults):
        leave(this.verdict.exit_code)
    raise typer.Exit(this.verdict.exit_code)


def default_workers(profile: str) -> int:
    """One process for each core, up to four; in a longer run one more, for tests that wait for something."""
    return min(os.cpu_count() or 1, 4) + (profile != "quick")


def show(this: Run, console: Console) -> None:
    """The end of a run, in words: what failed and because of what, everything that was not tested, the verdict."""
    verdict = this.verdict
    assert verdict is not None
    failed = [record for record in this.records if record.outcome == "failed"]
    for record in failed[:SHOWN_FAILURES]:
        console.print(f"[bold red]failed[/] {', '.join(record.broke)}  {escape(record.name)}", highlight=False)
        console.print(f"       because {escape((record.decisive.because or 'of an error').strip())}", highlight=False)
    if len(failed) > SHOWN_FAILURES:
        console.print(f"       and {len(failed) - SHOWN_FAILURES} more", highlight=False)
    for fault in this.faults:
        whose = "adapter" if fault["store"] is None else "store"
        console.print(f"[bold red]{whose}[/] {escape(str(fault['message']))}", highlight=False)
        if fault["stderr"]:
            console.print(f"        it wrote to stderr: {escape(str(fault['stderr'])[-2000:])}", highlight=False)
    for state, word in (("stale", "stale"), ("by_chance", "held this time:"), ("not_run", "not run")):
        lines = [line for line in verdict.known if line["state"] == state]
        if state == "not_run" and len(lines) > SHOWN_NOT_RUN:
            console.print(f"[bold yellow]not run[/] {len(lines)} known failures, whose tests did not all run")
            continue
        for line in lines:
            console.print(f"[bold yellow]{word}[/] known failure, line {line['line']}: {escape(line['names'])}")
    _show_not_tested(this, console)
    show_stores(verdict.requirements, console, [row["name"] for row in this.stores if row["skipped"] is not None])
    counted = verdict.summary["requirements"]
    words = ", ".join(f"{name.replace('_', ' ')} {number}" for name, number in counted.items())
    console.print(f"requirements: {words}", highlight=False)
    colour = "green" if verdict.exit_code == CONFORMS else "red"
    word = words_of(verdict.name, verdict.summary).badge
    console.print(f"[bold {colour}]{word}[/]: {escape(verdict.because)}", highlight=False)
    if this.options.report is not None:
        console.print(f"report: {this.options.report / 'index.html'}", highlight=False, soft_wrap=True)


def guarding_budgets() -> dict[str, list[str]]:
    """For each requirement that budgets stand for, the operations that have them: what `touchstone cost` measures."""
    guarded: dict[str, list[str]] = {}
    # Imported late: budgets know their costly engines, and with them the whole reference.
    from cost_budgets.budgets import read_budgets

    for operation, budget in read_budgets().items():
        for each in budget.guards:
            guarded.setdefault(each, []).append(operation)
    return guarded


def _show_not_tested(this: Run, console: Console) -> None:
    assert this.verdict is not None
    chosen = {each.upper() for each in this.options.suites}
    measured = [each.id for each in requirements().values() if each.capability == COST and each.group in chosen]
    if measured:
        words = f"{measured[0]} to {measured[-1]} have no tests: `touchstone cost` measures them, against budgets"
        console.print(f"[bold cyan]not tested[/]: {words}", highlight=False)
    for outcome, colour in (("unsupported", "magenta"), ("skipped", "cyan")):
        ids = [row["id"] for row in this.verdict.requirements if row["outcome"] == outcome]
        if ids:
            console.print(f"[bold {colour}]{outcome}[/]: {', '.join(ids)}", highlight=False)
    skipped: dict[str, list[str | None]] = {}
    for record in this.records:
        if record.outcome == "skipped":
            words = f"{', '.join(record.requirements)}: {record.decisive.reason or 'no reason given'}"
            skipped.setdefault(words, []).append(record.store)
    for words, stores in skipped.items():
        names = ", ".join(dict.fromkeys(name for name in stores if name is not None))
        where = f" (on {names})" if names and len(this.options.stores) > 1 else ""
        console.print(f"         {escape(words)}{where}", highlight=False)


@app.command("requirements")
def requirements_command(
    format: Annotated[str, typer.Option(help="table or json.")] = "table",
    group: Annotated[str | None, typer.Option(help="Only this group, as in LAY.")] = None,
) -> None:
    """List the requirements, with the tests behind each."""
    from conformance.listing import SuitesUnreadable, by_requirement

    groups = {each.group for each in requirements().values()}
    if format not in ("table", "json"):
        raise usage(f"there is no format '{format}'; there are table and json")
    if group is not None and group.upper() not in groups:
        raise usage(f"there is no group '{group}'; there are {', '.join(sorted(groups))}")
    try:
        listed = by_requirement()
    except SuitesUnreadable as error:
        Console(stderr=True).print(f"the suites cannot be read: {escape(str(error))}")
        raise typer.Exit(3) from None
    budgets = guarding_budgets()
    chosen = {each: tests for each, tests in listed.items() if group in (None, each.group, each.group.lower())}
    if format == "json":
        rows = [
            {**vars(each), "source": list(each.source), "tests": list(tests), "budgets": budgets.get(each.id, [])}
            for each, tests in chosen.items()
        ]
        typer.echo(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    console = make_console()
    table = Table("id", "level", "capability", "tests", "requirement", box=None, pad_edge=False)
    for each, tests in chosen.items():
        behind = f"{len(budgets.get(each.id, []))} budgets" if each.capability == COST else str(len(tests))
        table.add_row(each.id, each.level, each.capability, behind, escape(each.sentence))
    console.print(table)
    for each in chosen:
        if each.capability == COST:
            names = ", ".join(budgets.get(each.id, [])) or "none"
            console.print(
                f"{each.id} is measured by `touchstone cost`, against the budgets of: {names}", highlight=False
            )
    covered = sum(1 for tests in chosen.values() if tests)
    bare = [each.id for each, tests in chosen.items() if each.level == "must" and not tests]
    console.print(f"{len(chosen)} requirements, {covered} with tests, must without a test: {', '.join(bare) or 'none'}")


@app.command("replay")
def replay_command(
    trace: Annotated[Path, typer.Argument(help="A trace.json.")],
    engine: EngineOption = "reference",
    peer: PeerOption = None,
    store: Annotated[
        str | None,
        typer.Option(help=f"One of {', '.join(STORES)}; by default local for a sequence, and else where it was found."),
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=0.1, max=86_400, help="Seconds that one answer of the engine may take.")
    ] = 120.0,
) -> None:
    """Repeat a failure on any engine, and say which requirement it breaks, and because of what."""
    from conformance.replay import replay
    from failpoints.workshop import UnfitStore

    console = make_console()
    try:
        parse(engine)
        if peer is not None:
            parse(peer)
        code = replay(
            read_trace(trace), engine=engine, peer=peer, store=store, timeout_seconds=timeout, console=console
        )
    except (InvalidEngineSpec, UnknownStore, UnfitStore, TraceError) as error:
        raise usage(str(error)) from None
    raise typer.Exit(code)


app.command("sweep")(sweep_command)
app.command("race")(race_command)
app.command("storm")(storm_command)
app.command("pin")(pin_command)
app.command("cost")(cost_command)
app.command("bench")(bench_command)
app.command("smoke")(smoke_command)
app.command("audit")(audit_command)
app.command("doctor")(doctor_command)


def main() -> None:
    """Whatever breaks down in the kit itself is no verdict on an engine."""
    try:
        app()
    except Exception:
        traceback.print_exc()
        print("error: this is a mistake of the kit, and says nothing about the engine", file=sys.stderr)
        sys.exit(COULD_NOT_RUN)
