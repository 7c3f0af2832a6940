"""What the operations answer: counts, outcomes, and the commit that was made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from conformance.model.evolution import Step
from conformance.model.merge import Commit

Outcome = Literal["already_up_to_date", "fast_forward", "merged"]


@dataclass(frozen=True)
class Loaded:
    """What a load did."""

    branch_created: bool
    nodes_loaded: int
    edges_loaded: int
    commit: Commit


@dataclass(frozen=True)
class Mutated:
    """What a mutation did; no commit if it touched nothing [LIN-03]."""

    affected_nodes: int
    affected_edges: int
    commit: Commit | None


@dataclass(frozen=True)
class Merged:
    """How a merge ended; no commit if the target had everything already [MRG-01]."""

    outcome: Outcome
    commit: Commit | None


@dataclass(frozen=True)
class Applied:
    """What a schema apply did; no commit if the schema is the accepted one [SCH-04]."""

    applied: bool
    steps: tuple[Step, ...]
    commit: Commit | None
    supported: bool = True
