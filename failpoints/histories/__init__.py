"""Histories: several processes write one graph at once, and the commit chain is held against the model.

    plan      from a seed, what each process will ask: plain values, the same in every run
    steps     what one step is to an engine, and what it means in the model
    record    what was asked and answered, and what the graph says about itself afterwards
    run       the processes: all warm, one starting shot, some of them killed on the way
    chain     one line of commits per branch, and whose each commit is
    check     the chain replayed in the model: every commit, and the exact final state
    crowding  edges that were in a table and never published, which a mutation may have counted
    telling   a contradiction in words: the few calls that it takes to see it
    history   all of it, for the command line

Every call has an actor of its own, so a commit names the call that made it. The chain is therefore the order in which
the engine itself says that everything happened, and whoever replays it needs no search.
"""

from __future__ import annotations

from failpoints.histories.check import Sound, check
from failpoints.histories.history import HistoryResult, rerun, run_history
from failpoints.histories.plan import PROFILES, Plan, PlanError, make_plan
from failpoints.histories.record import Call, History, Outcome
from failpoints.histories.telling import Contradiction

__all__ = [
    "PROFILES",
    "Call",
    "Contradiction",
    "History",
    "HistoryResult",
    "Outcome",
    "Plan",
    "PlanError",
    "Sound",
    "check",
    "make_plan",
    "rerun",
    "run_history",
]
