"""A reader while a lane is held: whoever opens the graph read-only sees it between two commits, never inside one.

The other lane is done, so what it was acknowledged is there. Whether the held lane has taken effect already, only the
graph can say; but if a reader has seen it, it stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from conformance.adapters import AdapterFault, EngineError, Unsupported
from conformance.judge import Engine, RequirementBroken
from conformance.judge.compare import first_difference
from conformance.model import Model
from failpoints.pairs.judge import Lanes
from failpoints.pairs.orders import Serial, serial_orders
from failpoints.steps import MAIN

# A call: what it does, its lane, and its number there.
Named = tuple[str, str, int]


@dataclass(frozen=True)
class Glimpse:
    """What a reader saw: the rows of every branch, the refusal that it met, or that it broke down."""

    exports: Mapping[str, str] = field(default_factory=dict, repr=False)
    refusal: str | None = None
    fault: AdapterFault | None = None


def glimpse(engine: Engine, uri: str) -> Glimpse | None:
    """Open a graph read-only, and read all of it. None if the engine opens to write only: it would take part."""
    try:
        handle = engine.open(uri, read_only=True)
        names = handle.branch_list() if engine.supports("branch_list") else [MAIN]
        seen = Glimpse({name: handle.export(name) for name in names})
        handle.close()
    except Unsupported:
        return None
    except EngineError as error:
        return Glimpse(refusal=str(error))
    except AdapterFault as fault:
        return Glimpse(fault=fault)
    return seen


def judge_glimpse(model: Model | None, lanes: Lanes, seen: Glimpse, what: str) -> frozenset[Named]:
    """The calls of unknown end that the reader saw done; `RequirementBroken` if it saw no state of any serial order."""
    if seen.refusal is not None:
        if any(call.step["do"] == "schema_apply" for lane in lanes for call in lane):
            return frozenset()  # Between its publish and its files a schema apply may be read as what it is: not done.
        because = f"{what} the other lane is done, and a reader is refused meanwhile: {seen.refusal}"
        raise RequirementBroken(("SNP-09", "PUB-01"), because)
    found, differences = [], []
    for serial in serial_orders(model, lanes):
        difference = _difference(serial, seen.exports)
        if difference is None:
            found.append(serial)
        else:
            differences.append(f"as {serial.order or 'neither'}, {difference}")
    if not found:
        words = "; ".join(list(dict.fromkeys(differences))[:3]) or "no order of them is allowed by the model"
        raise RequirementBroken(("PUB-01", "SNP-02"), f"{what} a reader meanwhile sees a graph in no order: {words}")
    return frozenset.intersection(*(_named(serial) for serial in found))


def judge_kept(serial: Serial, visible: frozenset[Named], what: str) -> None:
    """What a reader has seen does not go away again [PUB-01]."""
    for do, lane, _ in sorted(visible - _named(serial)):
        raise RequirementBroken(("PUB-01",), f"{what} a reader had seen the {do} of the {lane} lane, and it is gone")


def _named(serial: Serial) -> frozenset[Named]:
    """What has happened in an order, without what changes no row."""
    calls = (done.call for done in serial.done if not done.call.is_maintenance)
    return frozenset((str(call.step["do"]), call.lane, call.number) for call in calls)


def _difference(serial: Serial, exports: Mapping[str, str]) -> str | None:
    if serial.model is None:
        return "there is no graph"
    model = serial.model.copy()
    if sorted(exports) != model.branch_list():
        return f"there are the branches {sorted(exports)}, and not {model.branch_list()}"
    for branch, text in exports.items():
        model.learn_ids(branch, text)
        difference = first_difference(text, model.export(branch))
        if difference is not None:
            return f"on the branch '{branch}' {difference}"
    return None
