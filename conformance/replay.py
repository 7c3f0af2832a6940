"""`touchstone replay`: repeat a failure from its trace, on any engine, and say what it breaks, and because of what."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from rich.console import Console
from rich.markup import escape

from conformance.adapters import AdapterFault, EngineError, Unsupported
from conformance.judge import Engine, RequirementBroken
from conformance.registry import requirements
from conformance.runner.plugin import FAULTS
from conformance.runner.redaction import without_secrets
from conformance.runner.session import RunOptions, run, without_aws_variables
from conformance.runner.verdict import CONFORMS, COULD_NOT_RUN, FAILS, NOTHING_TESTED
from conformance.sequences.player import Player
from conformance.sequences.story import line_of
from fixtures.stores.catalog import StoreUnavailable, kind_of, running


def replay(
    trace: Mapping[str, Any],
    *,
    engine: str,
    store: str | None,
    timeout_seconds: float,
    console: Console,
    peer: str | None = None,
) -> int:
    """Run a trace; the exit code is that of a run: 0 it holds here, 1 it breaks a requirement, 3, 4.

    A sequence is replayed on a local directory by default, anything else where it was found: that may be about the
    store, and a fault is made between an engine and an S3 store.
    """
    store = store or ("local" if trace["kind"] == "sequence" else trace["store"])
    kind_of(store)
    broke = f", which broke {', '.join(trace['broke'])}" if trace["broke"] else ""
    console.print(f"a trace of '{escape(trace['test'])}' on {escape(trace['engine'])}{broke}", highlight=False)
    if engine != trace["engine"]:
        console.print(f"replayed on {escape(without_secrets(engine))}", highlight=False, soft_wrap=True)
    if trace["kind"] not in ("sequence", "example"):
        return _replay_fault(
            trace, engine=engine, peer=peer, store=store, timeout_seconds=timeout_seconds, console=console
        )
    if trace["kind"] == "example":
        return _run_the_test(trace, engine=engine, store=store, timeout_seconds=timeout_seconds, console=console)
    from failpoints.workshop import SweepBroken, blaming

    without_aws_variables()
    try:
        with running(store) as place, blaming(place), ExitStack() as stack:

            def connected(spec: str) -> Engine:
                made = Engine.connect(spec, env=place.env, timeout_seconds=timeout_seconds)
                stack.callback(made.close)
                return made

            second = None if peer is None else connected(peer)
            player = Player(connected(engine), place.fresh_root, place.env, trace["schema"], peer=second)
            return _play(player, trace, console)
    except StoreUnavailable as reason:
        console.print(f"[bold cyan]skipped[/]: {escape(str(reason))}", highlight=False)
        return NOTHING_TESTED
    except (AdapterFault, Unsupported, EngineError, SweepBroken) as fault:
        console.print(f"[bold red]could not run[/]: {escape(str(fault))}", highlight=False)
        return COULD_NOT_RUN
    except RequirementBroken as broken:
        return _broke(broken, console)


def _replay_fault(
    trace: Mapping[str, Any],
    *,
    engine: str,
    peer: str | None,
    store: str,
    timeout_seconds: float,
    console: Console,
) -> int:
    from failpoints.gate import GateError
    from failpoints.replays import replay_fault
    from failpoints.workshop import SweepBroken
    from fixtures.forge import ForgeError

    without_aws_variables()
    try:
        ending = replay_fault(
            trace, engine=engine, peer=peer, store=store, timeout_seconds=timeout_seconds, console=console
        )
    except StoreUnavailable as reason:
        console.print(f"[bold cyan]skipped[/]: {escape(str(reason))}", highlight=False)
        return NOTHING_TESTED
    except (AdapterFault, Unsupported, EngineError, SweepBroken, GateError, ForgeError) as fault:
        console.print(f"[bold red]could not run[/]: {escape(str(fault))}", highlight=False)
        return COULD_NOT_RUN
    except RequirementBroken as broken:
        return _broke(broken, console)
    console.print(f"[bold green]holds[/]: {escape(ending)}", highlight=False, soft_wrap=True)
    return CONFORMS


def _play(player: Player, trace: Mapping[str, Any], console: Console) -> int:
    if not trace["steps"]:
        console.print("[bold cyan]nothing was done[/]: this trace has no steps", highlight=False)
        return NOTHING_TESTED
    for number, step in enumerate(trace["steps"], 1):
        console.print(f"{number:>3}. {escape(line_of(step))}", highlight=False, soft_wrap=True)
        player.play(step)
    console.print(f"[bold green]holds[/]: {len(trace['steps'])} steps, and nothing was broken", highlight=False)
    return CONFORMS


def _broke(broken: RequirementBroken, console: Console) -> int:
    for each in broken.ids:
        console.print(f"[bold red]broke {each}[/]: {escape(requirements()[each].sentence)}", highlight=False)
    console.print(f"because {escape(broken.because)}", highlight=False, soft_wrap=True)
    return FAILS


def _run_the_test(
    trace: Mapping[str, Any], *, engine: str, store: str, timeout_seconds: float, console: Console
) -> int:
    """A test of the suites prepares its graph on disk as well: it is run again as it is."""
    options = RunOptions(
        engine=engine,
        stores=(store,),
        profile="deep",
        seed=trace["seed"],
        timeout_seconds=timeout_seconds,
        workers=1,
        only_test=trace["test"],
        suites=(FAULTS,) if trace["test"].startswith("test_faults_") else (),
    )
    this = run(options, console)
    assert this.verdict is not None
    for record in this.records:
        if record.outcome == "failed":
            _broke(RequirementBroken(record.broke, record.decisive.because or "of an error"), console)
            if not {*record.broke} & {*trace["broke"]}:
                console.print("[bold cyan]something else[/]: not what the trace says that it broke", highlight=False)
    if this.verdict.exit_code == CONFORMS:
        console.print("[bold green]holds[/]: the test passes here", highlight=False)
    for fault in this.faults:
        console.print(f"[bold red]could not run[/]: {escape(str(fault['message']))}", highlight=False)
    return this.verdict.exit_code
