"""What an engine must offer for a requirement to apply to it.

A requirement belongs to one capability. `core` applies to every engine, and an engine that lacks an operation of it
fails. Any other capability may be absent: its requirements are then reported apart, as unsupported, never as passed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from conformance.registry import Capability, requirements

OPERATIONS: Final[Mapping[Capability, frozenset[str]]] = {
    "core": frozenset({"init", "open", "close", "load", "mutate", "read", "snapshot", "commits", "export"}),
    "branches": frozenset({"branch_create", "branch_list", "branch_delete"}),
    "merge": frozenset({"branch_create", "branch_list", "merge"}),
    "time_travel": frozenset({"snapshot", "read"}),
    "schema": frozenset({"schema_plan", "schema_apply"}),
    "maintenance": frozenset({"optimize", "cleanup"}),
    "recovery": frozenset({"recoveries"}),
    "storage": frozenset(),
    "export": frozenset({"export"}),
    "diff": frozenset({"diff"}),
    "server": frozenset({"server"}),
    "cost": frozenset(),
}


def capabilities_of(ids: Iterable[str]) -> tuple[Capability, ...]:
    """The capabilities that some requirements need, core aside, sorted; `core` alone if they need nothing else."""
    needed = {requirements()[each].capability for each in ids} - {"core"}
    return tuple(sorted(needed)) or ("core",)


def lacking(capabilities: Iterable[Capability], offered: frozenset[str]) -> frozenset[str]:
    """The operations that some capabilities need and an engine does not offer."""
    return frozenset(op for each in capabilities for op in OPERATIONS[each]) - offered
