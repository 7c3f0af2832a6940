"""What no engine can be blamed for: races that the format leaves open, and the schedules in which they show.

The catalog names some of them (section 24), decision 001 the others. A rule is as narrow as it can be: the pair, the
lane that is held, the request in which it is held, and, where it is known, what then shows. A schedule that ends well
is never called a gap.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from failpoints.pairs.pairs import SIDES, Side

# Decision 001: a branch that is made anew lives at the same address, and nobody can tell whose files these are.
RECREATED: Final = "a writer is suspended inside a request while its branch is deleted and made anew"
# Section 24: fork reclaim against foreign processes.
RECLAIM: Final = "a first write is suspended while it makes a fork, and another process takes that for an orphan"
# Section 24: cross-process recovery roll-back, and schema staging.
ROLL_BACK: Final = "recoveries of two processes race in rolling back one writer"
STAGING: Final = "recoveries of two processes race over the staged files of one schema apply"


@dataclass(frozen=True)
class Gap:
    """One race: where it can show, and as which requirements. None means any."""

    name: str
    pair: str
    held: Side
    verbs: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    breaks: tuple[str, ...] = ()
    table: str | None = None


# A publish reads before it writes, and all of it is inside the race.
_OF_THE_PUBLISH: Final = ("listing", "manifest data", "manifest deletion", "manifest transaction", "manifest version")
GAPS: Final[tuple[Gap, ...]] = (
    Gap(RECREATED, "branch-write-recreate", "first", (), _OF_THE_PUBLISH, ("PUB-21",), "__manifest"),
    *(Gap(RECLAIM, "first-write-first-write", side, ("PUT",), ("table ref",)) for side in SIDES),
    *(Gap(ROLL_BACK, "open-open-back", side, ("PUT",), ("table version", "manifest version")) for side in SIDES),
    *(Gap(STAGING, "open-open-schema", side, ("PUT", "COPY", "DELETE"), ("schema file",)) for side in SIDES),
)


def gap_of(pair: str, held: Side, verb: str, role: str, table: str, broken: tuple[str, ...]) -> str | None:
    """The race that a schedule may show, if it may show one and has broken no more than that."""
    for gap in GAPS:
        fits = (
            gap.pair == pair
            and gap.held == held
            and gap.table in (None, table)
            and set(broken) <= set(gap.breaks or broken)
        )
        if fits and verb in (gap.verbs or (verb,)) and role in (gap.roles or (role,)):
            return gap.name
    return None
