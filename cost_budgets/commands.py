"""`touchstone cost`: what an engine's operations cost on S3, held against budgets.

Exit codes are those of a run: 0 within the budgets, 1 over or under them, 2 usage, 3 the engine, its adapter or the
store broke down, or an operation could not be measured, 4 nothing was measured. Of several stores the worst counts: 3,
then 1, then 4.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console
from rich.markup import escape

from conformance.adapters import InvalidEngineSpec, parse
from conformance.consoles import check_folder, make_console, usage
from failpoints.command_ends import EngineOption, JobsOption, TimeoutOption, default_jobs, in_words
from fixtures.stores.catalog import OWN_SERVER, STORES, UnknownStore, kind_of
from fixtures.stores.moto import StoreUnavailable

if TYPE_CHECKING:
    from cost_budgets.budgets import Budget
    from cost_budgets.measuring import Profile
    from cost_budgets.reporting import StoreCost

EXIT_INTERRUPTED: Final = 130
_PROFILES: Final = ("full", "quick")
_OWN: Final = ", ".join(name for name, kind in STORES.items() if OWN_SERVER in kind.capabilities)


def cost_command(
    engine: EngineOption = "reference",
    store: Annotated[
        list[str] | None,
        typer.Option(
            "--store", help=f"An S3 server that the command starts itself: {_OWN}; may be repeated. By default moto."
        ),
    ] = None,
    profile: Annotated[str, typer.Option(help=f"How deep the graphs get: {' or '.join(_PROFILES)}.")] = "full",
    operation: Annotated[
        list[str] | None, typer.Option("--operation", help="An operation; may be repeated. By default all.")
    ] = None,
    budgets: Annotated[Path | None, typer.Option(help="Other budgets than the kit's own.")] = None,
    report: Annotated[Path | None, typer.Option(help="A folder for cost.html, with curves, and cost.json.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the measurements as JSON instead of a table.")] = False,
    jobs: JobsOption = None,
    timeout: TimeoutOption = 120.0,
) -> None:
    """Count the requests of every operation at several depths, and hold them against budgets."""
    from conformance.runner.redaction import without_secrets
    from conformance.runner.session import without_aws_variables
    from cost_budgets.at_stores import names_of
    from cost_budgets.budgets import BUDGETS, BudgetError, read_budgets
    from cost_budgets.measuring import PROFILES
    from cost_budgets.operations import OPERATIONS
    from cost_budgets.reporting import CODES, report_of, worst_verdict, write_report

    if profile not in PROFILES:
        raise usage(f"--profile is {' or '.join(PROFILES)}, not '{profile}'")
    unknown = [name for name in operation or () if name not in OPERATIONS]
    if unknown:
        raise usage(f"there is no operation '{unknown[0]}'; there are {', '.join(OPERATIONS)}")
    stores = names_of(store, "moto")
    try:
        parse(engine)
        known = read_budgets(budgets or BUDGETS)
        for name in stores:
            _check_store(name)
    except (InvalidEngineSpec, BudgetError, UnknownStore) as error:
        raise usage(str(error)) from None
    without = [name for name in operation or () if name not in known]
    if without:
        raise usage(f"{budgets} has no budget for '{without[0]}'; it has some for {', '.join(known)}")
    if report is not None:
        check_folder(report, "the report")
    chosen = list(dict.fromkeys(operation or known))
    console = make_console()
    # What is printed as JSON is for a program: everything else goes where a person looks.
    words = Console(stderr=True) if as_json else console
    without_aws_variables()
    costs: list[StoreCost] = []
    how: dict[str, Any] = {"jobs": jobs or default_jobs(), "timeout_seconds": timeout}
    with in_words(words) as ended:
        for name in stores:
            costs.append(_cost_at(name, engine, PROFILES[profile], chosen, known, **how))
            _show(words, costs[-1], profile, known, with_tables=not as_json)
    if ended.early and not costs:
        words.print("no store was measured to its end, so there is nothing to report", highlight=False)
        raise typer.Exit(EXIT_INTERRUPTED)
    guards = {name: budget.guards for name, budget in known.items()}
    whole = report_of(costs, engine=without_secrets(engine), profile=profile, guards=guards)
    if as_json:
        typer.echo(json.dumps(whole))
    if report is not None:
        try:
            page = write_report(report, whole, costs, guards)
        except OSError as error:
            raise usage(f"the report cannot be written to {report}: {error.strerror}") from None
        words.print(f"report: {page}", highlight=False, soft_wrap=True)
    if len(costs) > 1:
        for each in costs:
            words.print(f"{each.store}: {_styled(each.verdict)}", highlight=False)
    if ended.early:
        raise typer.Exit(EXIT_INTERRUPTED)
    # As in every run, 3 comes before 1: what could not be measured says nothing about the engine.
    raise typer.Exit(CODES[worst_verdict(costs)])


def _check_store(name: str) -> None:
    """Refuse a store before which nothing can be counted, before anything is started."""
    if OWN_SERVER not in kind_of(name).capabilities:
        why = "a local directory has none" if name == "local" else f"'{name}' is somebody's, and mostly behind TLS"
        raise usage(f"requests are counted between an engine and an S3 server of our own; {why}: give --store moto")


def _cost_at(
    name: str, engine: str, profile: Profile, chosen: Sequence[str], known: Mapping[str, Budget], **how: Any
) -> StoreCost:
    """Measure at one store. What breaks down there is kept in words, and the next store has its turn."""
    from conformance.runner.redaction import without_secrets, words_without_secrets
    from cost_budgets.at_stores import BROKEN
    from cost_budgets.judging import judge
    from cost_budgets.measuring import measure_at_once
    from cost_budgets.operations import OPERATIONS
    from cost_budgets.progress import progress_bar
    from cost_budgets.reporting import StoreCost

    began = time.monotonic()
    steps = sum(len(profile.of(OPERATIONS[each], ground)) for each in chosen for ground in OPERATIONS[each].grounds)
    try:
        with progress_bar(f"{without_secrets(engine)} on {name}", steps) as told:
            hello, found = measure_at_once(engine, name, profile, names=chosen, told=told, **how)
    except StoreUnavailable as reason:
        return StoreCost(name, skipped=str(reason))
    except BROKEN as fault:
        words = words_without_secrets(str(fault))
        return StoreCost(name, without_secrets(engine), broken=words, seconds=time.monotonic() - began)
    says = words_without_secrets(f"{hello.name} {hello.version}")
    return StoreCost(name, says, found, judge(found, known), time.monotonic() - began)


def _show(console: Console, cost: StoreCost, profile: str, known: Mapping[str, Budget], *, with_tables: bool) -> None:
    """What was found at one store, for people."""
    from cost_budgets.reporting import table_of, unclassified_of
    from cost_budgets.yardstick import beside, yardstick_table

    def say(style: str, word: str, rest: str) -> None:
        console.print(f"[bold {style}]{word}[/]{escape(rest)}", highlight=False, soft_wrap=True)

    if cost.skipped:
        return say("cyan", "skipped", f": {cost.skipped}")
    took = f", profile {profile}, {cost.seconds:.0f} s"
    say("default", f"{escape(cost.engine or 'the engine')} on {cost.store}", took)
    if cost.broken:
        return say("red", "could not run", f": {cost.broken}")
    if with_tables and cost.lines:
        console.print(table_of(cost.lines))
        if beside(cost.found):
            console.print(yardstick_table(beside(cost.found)))
    for name, why in cost.found.unsupported.items():
        say("magenta", "unsupported", f" {name}: {why}")
    for name, why in cost.found.failed.items():
        say("red", "could not be measured", f" {name}: {why}")
    for name, what in unclassified_of(cost.found).items():
        say("yellow", "unclassified", f" {name}: {what}")
    if kind_of(cost.store).start_with_pages is None and cost.lines:
        say(
            "yellow", "long pages", f" on {cost.store}: who lists more keys with every commit is seen on moto, not here"
        )
    if cost.verdict == "nothing_measured":
        return say("cyan", "nothing was measured", " that has a budget")
    for line in cost.wrong:
        what = f" {line.operation}, {line.ground}: {line.measure} {line.values} against {line.formula}"
        say("red", line.verdict, f"{what} [{', '.join(known[line.operation].guards)}]")
    console.print(f"{_styled(cost.verdict)}: {escape(cost.words)}", highlight=False)


def _styled(verdict: str) -> str:
    return f"[bold {'green' if verdict == 'within' else 'red'}]{verdict}[/]"
