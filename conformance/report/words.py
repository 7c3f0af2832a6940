"""The words and signs of a report: one for each verdict and each outcome, the same in the page and in the badge.

Colour is never the only difference: every outcome has a sign and a word of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final


@dataclass(frozen=True)
class Outcome:
    """How one outcome is said, and the sign it has where there is no room for the word."""

    key: str
    word: str
    sign: str
    meaning: str


@dataclass(frozen=True)
class Verdict:
    """How one verdict is said, and its tone: good, bad, warning or neutral."""

    headline: str
    badge: str
    tone: str


OUTCOMES: Final[Mapping[str, Outcome]] = MappingProxyType(
    {
        outcome.key: outcome
        for outcome in (
            Outcome("failed", "failed", "✕", "the engine does otherwise"),
            Outcome("known_failing", "known failing", "!", "fails, and the list of known failures says so"),
            Outcome("unsupported", "unsupported", "∅", "the engine says that it does not have this"),
            Outcome("skipped", "skipped", "»", "could not be tried here"),
            Outcome("not_tested", "not tested", "?", "no test of it reached its step in this run"),
            Outcome("fault", "adapter fault", "#", "the adapter went wrong, not the engine"),
            Outcome("store_fault", "store fault", "~", "the store broke down, not the engine"),
            Outcome("passed", "passed", "✓", "held wherever it was tried"),
            Outcome("gap", "open gap", "○", "known and open, never asserted"),
        )
    }
)

# How the summary calls the number of those that have such an outcome, where it is not the outcome's own name.
COUNTED_AS: Final[Mapping[str, str]] = MappingProxyType({"fault": "faults", "store_fault": "store_faults"})

VERDICTS: Final[Mapping[str, Verdict]] = MappingProxyType(
    {
        "conforms": Verdict("Conforms", "conforms", "good"),
        "fails": Verdict("Fails", "fails", "bad"),
        "could_not_run": Verdict("Could not run", "could not run", "neutral"),
        "nothing_tested": Verdict("Nothing tested", "nothing tested", "neutral"),
        "stale_known_failures": Verdict("Known failures are stale", "stale known failures", "warning"),
        "interrupted": Verdict("Interrupted", "interrupted", "neutral"),
    }
)

_NOT_EVERYWHERE: Final = Verdict("Not tested on every store", "not tested on every store", "neutral")

GROUPS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "LAY": "Layout and names",
        "MAN": "The manifest",
        "STM": "Format stamp",
        "PUB": "Publishing",
        "LIN": "Lineage",
        "SNP": "Snapshots and time travel",
        "MUT": "Mutations",
        "LOD": "Loading",
        "VAL": "Schema language and validation",
        "DEL": "Deletes",
        "REC": "Recovery",
        "BRA": "Branches",
        "MRG": "Merges",
        "SCH": "Schema changes",
        "IDX": "Indexes",
        "OPT": "Optimizing",
        "RPR": "Repair",
        "CLN": "Cleanup",
        "TMB": "Tombstones",
        "EXP": "Export and import",
        "CHG": "Changes between snapshots",
        "STO": "Stores",
        "SRV": "Server",
        "CLI": "Command line",
        "COST": "Cost",
    }
)


def words_of(verdict: str, summary: Mapping[str, Mapping[str, int]]) -> Verdict:
    """How a verdict is said. Where one store was missing and another was there, something was tested."""
    if verdict == "nothing_tested" and summary["requirements"]["passed"]:
        return _NOT_EVERYWHERE
    return VERDICTS[verdict]


def badge_message(report: Mapping[str, Any]) -> str:
    """What the badge says. A conforming engine is measured against everything that is asserted, not what it tried."""
    words = words_of(report["verdict"], report["summary"]).badge
    requirements = report["summary"]["requirements"]
    if report["verdict"] == "conforms":
        return f"{words} {requirements['passed']}/{requirements['total'] - requirements['gap']}"
    if report["verdict"] == "fails":
        return f"{words} {requirements['failed'] or report['summary']['tests']['failed']}"
    return words


def engine_title(report: Mapping[str, Any]) -> str:
    """The engine by name and version, or as it was asked for when it could not answer."""
    engine = report["engine"]
    return " ".join(filter(None, (engine["name"], engine["version"]))) or str(engine["spec"])
