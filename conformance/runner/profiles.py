"""How much a run does: every profile runs the same suites, and differs in what takes the time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Self


@dataclass(frozen=True)
class Profile:
    """`sequences` random histories of `steps` operations each, and all examples, or the fewest that name everything."""

    name: str
    sequences: int
    steps: int
    all_examples: bool
    description: str

    def with_operations(self, number: int | None) -> Self:
        """The same, with as many sequences as it takes for so many random operations in all."""
        return self if number is None else replace(self, sequences=-(-number // self.steps))


PROFILES: Final[Mapping[str, Profile]] = {
    profile.name: profile
    for profile in (
        Profile(
            "quick", 4, 6, False, "few examples that name every requirement, four short sequences: for every change"
        ),
        Profile("default", 8, 15, True, "all examples and eight random sequences: for every merge"),
        Profile("deep", 80, 30, True, "all examples and eighty long random sequences: for every night"),
    )
}
