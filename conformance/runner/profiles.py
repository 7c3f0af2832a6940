"""How much a run does: every profile runs the same suites, and differs in what takes the time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Profile:
    """`sequences` random histories of `steps` operations each, whether long examples run, and how many rows of each
    table of examples (None: all)."""

    name: str
    sequences: int
    steps: int
    long_examples: bool
    rows_per_table: int | None
    description: str


PROFILES: Final[Mapping[str, Profile]] = {
    profile.name: profile
    for profile in (
        Profile("quick", 4, 6, False, 2, "two rows of each table of examples, four short sequences: for every change"),
        Profile("default", 8, 15, True, None, "all examples and eight random sequences: for every merge"),
        Profile("deep", 80, 30, True, None, "all examples and eighty long random sequences: for every night"),
    )
}
