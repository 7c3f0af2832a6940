"""A graph at rest: what must be true of it when two processes are done with it, whatever became of their steps.

1. a read-write open works, and leaves no sidecar                       [PUB-21, REC-05]
2. what it shows is a serial order (`judge`)
3. one audit row tells of each writer that died, and of the right kind  [REC-05, REC-14, REC-19]
4. the auditor finds no error in the bytes
5. a second open recovers nothing and changes no object                 [REC-18, REC-20]
6. a further write works on every branch, and does what it means        [PUB-21]
7. the handles of the two processes show what is there then             [SNP-02]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from conformance.adapters import EngineError
from conformance.judge import Engine, Handle, RequirementBroken
from conformance.judge.blame import operation_of
from conformance.model import Model
from failpoints.oracle import FORWARD, judge_bytes, judge_second_open
from failpoints.pairs.judge import Decision, Lanes, decide, ends_branch, see
from failpoints.pairs.orders import CRASHED
from failpoints.pairs.stage import Dead
from failpoints.steps import Step, branch_of, meaning_or_none
from failpoints.world import ACKNOWLEDGED, World, attempt, difference_of_rows, exports_of, the_one, worlds_after
from failpoints.writers import follow_up
from fixtures.forge import Forge


def judge_at_rest(
    engine: Engine,
    uri: str,
    env: Mapping[str, str],
    model: Model | None,
    lanes: Lanes,
    what: str,
    *,
    witnesses: Sequence[Handle] = (),
    follow: Sequence[Step] = (),
    dead: Collection[Dead] = (),
) -> Decision:
    """Open, look at everything and write on; `RequirementBroken` says what does not hold.

    `witnesses` are the handles of the lanes, which are open since before. `dead` are the operations of those who died
    before the lanes began, which are lanes of their own.
    """
    handle = _opened(engine, uri, lanes, what)
    if handle is None:
        return _without_a_graph(engine, uri, env, lanes, what)
    left = list(Forge(uri, dict(env)).sidecars())
    if left:
        raise RequirementBroken(("REC-05", "PUB-21"), f"{what} and a read-write open there still is {left[0]}")
    decision = decide(model, lanes, see(handle, what), what)
    crash = [lane[0].step for lane in lanes if lane[0].lane == CRASHED]
    _judge_rows(handle, dead, crash, decision, what)
    judge_bytes(uri, env, what, "PUB-21")
    handle = judge_second_open(engine, handle, uri, env, what)
    assert decision.model is not None
    final = _judge_follow_up(handle, decision.model, follow, what)
    for witness in witnesses:
        _judge_witness(witness, final, what)
    handle.close()
    return decision


def _judge_witness(handle: Handle, model: Model, what: str) -> None:
    """Whoever had the graph open all the time sees what everybody sees, won or lost [SNP-02, PUB-14, PUB-15].

    A handle that answers with an error shows nothing that is wrong: it may want to be opened again.
    """
    try:
        exports = exports_of(handle)
    except EngineError:
        return
    difference = difference_of_rows(World("final", model), exports)
    if difference is not None:
        because = f"{what} a handle that was open before shows something else than a new one: {difference}"
        raise RequirementBroken(("SNP-02", "PUB-14"), because)


def _judge_rows(handle: Handle, dead: Collection[Dead], crash: Sequence[Step], decision: Decision, what: str) -> None:
    """However many have recovered an operation, one row tells of it, where an engine can list them.

    Of one that had moved nothing there need be none; but none may say that it went forward.
    """
    if not handle.engine.supports("recoveries"):
        return
    rows = handle.recoveries()
    told = Counter(row["operation_id"] for row in rows)
    for operation, times in told.items():
        if times > 1:
            raise RequirementBroken(("REC-19", "REC-14"), f"{what} {times} audit rows tell of {operation}")
    for each in dead:
        if each.moved and each.operation not in told:
            raise RequirementBroken(("REC-19", "REC-05"), f"{what} no audit row tells of {each.operation}, which died")
    happened = {done.call.number for done in decision.serial.done if done.call.lane == CRASHED}
    for number, step in enumerate(crash):
        if any(ends_branch(done.call, branch_of(step)) for done in decision.serial.done):
            continue  # Whether it was there before its branch went, nobody can see any more.
        own = {each.operation for each in dead if each.number == number}
        forward = any(row["recovery_kind"] == FORWARD for row in rows if row["operation_id"] in own)
        if own and forward != (number in happened):
            there, said = ("is" if it else "is not" for it in (number in happened, forward))
            because = f"{what} the {step['do']} that died {there} in the graph, and the audit says that it {said}"
            raise RequirementBroken(("REC-05", "REC-14"), because)


def _opened(engine: Engine, uri: str, lanes: Lanes, what: str) -> Handle | None:
    """The graph, open; None where two inits have left none."""
    try:
        return engine.open(uri)
    except EngineError as error:
        if lanes[0][0].step["do"] == "init" and error.kind == "not_found":
            return None
        raise RequirementBroken(("PUB-21",), f"{what} a read-write open is refused: {error}") from error


def _without_a_graph(engine: Engine, uri: str, env: Mapping[str, str], lanes: Lanes, what: str) -> Decision:
    """Both inits were refused: then a third one works [SCH-16]."""
    decision = decide(None, lanes, None, what)
    call = lanes[0][0]
    try:
        engine.init(uri, call.step["schema"])
    except EngineError as error:
        raise RequirementBroken(("SCH-16",), f"{what} there is no graph, and no other can be made: {error}") from error
    judge_bytes(uri, env, f"{what}, and a third init", "PUB-21")
    return decision


def _judge_follow_up(handle: Handle, model: Model, steps: Sequence[Step], what: str) -> Model:
    """Do further steps, the pair's own and then a write on every branch: each does what it means. The graph after."""
    further = (follow_up(number, branch, model.schema) for number, branch in enumerate(model.branch_list()))
    for step in (*steps, *further):
        ending = attempt(handle, step)
        if ending.kind == ACKNOWLEDGED:
            then = f"{what} and {step['do']} on '{branch_of(step)}'"
            model = the_one(handle, worlds_after(model, step, ending), then, (operation_of(step["do"], step),)).model
        elif meaning_or_none(model, step) is not None:
            because = f"{what} {step['do']} on '{branch_of(step)}' ended {ending}"
            raise RequirementBroken(("PUB-21",), because)
    return model
