"""Known failures: what an engine is known to break, with the reason, one line each.

    # A line that begins with '#' is for people.
    LOD-07                                       append accepts a key that is already there
    BRA-01@s3                                    a branch called ünïcode cannot be read; on a directory it can
    SCH-05:test_sch_plan.py::test_plans[*twice]  two properties may be renamed from one; what else SCH-05 asks holds
    test_mrg_merge.py::test_a_net_zero_branch*   merging a branch whose edits cancel out fails for ever
    ~PUB-20                                      of two racing writers both may be refused

The first word names a requirement, on every store or with an `@` on one of them (`s3` is every store but a local
directory), or tests by name (with `*` for any text; the axes in brackets may be left out), or after a `:` a requirement
in those tests alone. The rest says why, and is not optional. Known failures are run like all others: one that does not
fail any more is stale, and fails the run by name, so that the list is always true. What fails by chance has a `~`
before it: it is excused like any other, and that it holds in a run says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from conformance.registry import requirements
from fixtures.stores.catalog import S3, STORES

_ID: Final = re.compile(r"(?P<id>[A-Z]{3,4}-\d\d)(@(?P<place>[^:]*))?(:(?P<tests>.*))?")
_PLACES: Final = (S3, *STORES)
_BY_CHANCE: Final = "~"


class KnownFailingError(ValueError):
    """A list that cannot be used: each problem with its line."""

    def __init__(self, path: Path, problems: list[str]) -> None:
        super().__init__("\n".join(f"{path}: {problem}" for problem in problems))
        self.problems = tuple(problems)


@dataclass(frozen=True)
class KnownFailure:
    """One line."""

    line: int
    names: str
    reason: str

    @property
    def is_by_chance(self) -> bool:
        """Whether what it names may hold as well."""
        return self.names.startswith(_BY_CHANCE)

    @property
    def _meant(self) -> str:
        return self.names.removeprefix(_BY_CHANCE)

    @property
    def requirement(self) -> str | None:
        """The requirement that this line names; none, if it names tests."""
        found = _ID.fullmatch(self._meant)
        return None if found is None else found["id"]

    @property
    def place(self) -> str | None:
        """The only store, or kind of stores, on which the requirement is known to be broken."""
        found = _ID.fullmatch(self._meant)
        return None if found is None else found["place"]

    @property
    def tests(self) -> str | None:
        """The only tests in which the requirement is known to be broken."""
        found = _ID.fullmatch(self._meant)
        return None if found is None else found["tests"]

    def is_about(self, store: str | None) -> bool:
        """Whether this line says anything of a store. What is tested on none is tested everywhere."""
        if self.place is None or store is None:
            return True
        kind = STORES.get(store)
        return self.place == store or (kind is not None and self.place in kind.capabilities)

    def names_test(self, name: str) -> bool:
        """Whether this line names a test, whatever it breaks; brackets, the axes, may be left out of the line."""
        return self.requirement is None and _names(self._meant, name)

    def is_in(self, name: str) -> bool:
        """Whether this line says anything of what a test breaks."""
        return self.tests is None or _names(self.tests, name)

    def fits(self, function: str) -> bool:
        """Whether it has a name of tests in it that is, without its axes, that of a function."""
        return fnmatchcase(function, (self.tests or self._meant).partition("[")[0])

    def excuses(self, name: str, broke: Iterable[str], store: str | None = None) -> bool:
        """Whether a failing test is accounted for by this line."""
        if self.requirement is None:
            return self.names_test(name)
        return self.is_about(store) and self.is_in(name) and self.requirement in broke


def excuse(known: Iterable[KnownFailure], test: str, broke: Iterable[str], store: str | None = None) -> str | None:
    """Why a failing test is accounted for: a line names it, or lines name everything that it broke; else None."""
    lines = [line for line in known if line.is_about(store) and line.is_in(test)]
    by_name = [line for line in lines if line.requirement is None and line.names_test(test)]
    by_id = {line.requirement: line for line in lines if line.requirement is not None}
    ids = list(broke)
    if by_name:
        return by_name[0].reason
    if ids and all(each in by_id for each in ids):
        return "; ".join(dict.fromkeys(by_id[each].reason for each in ids))
    return None


def _is_any(function: str) -> bool:
    """Whether it fits every function. Of what fails by chance that would never be stale, whatever it hides."""
    return "*" in function and function.rstrip("*") in ("", "test", "test_")


def _names(pattern: str, name: str) -> bool:
    return fnmatchcase(name.partition("[")[0], pattern) or _literally(name, pattern)


def _literally(name: str, pattern: str) -> bool:
    """A glob in which brackets stand for themselves: names of tests have them."""
    return fnmatchcase(name, pattern.replace("[", "[[]"))


def read_known_failing(path: Path) -> tuple[KnownFailure, ...]:
    """Read a list, and refuse one with a line that nobody could check."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise KnownFailingError(path, [f"cannot be read: {error.strerror}"]) from None
    except UnicodeDecodeError:
        raise KnownFailingError(path, ["is not UTF-8 text"]) from None
    problems: list[str] = []
    found: dict[str, KnownFailure] = {}
    for number, line in enumerate(lines, 1):
        names, _, reason = line.strip().partition(" ")
        if not names or names.startswith("#"):
            continue
        failure = KnownFailure(number, names, reason.strip())
        if not failure.reason:
            problems.append(f"line {number}: '{names}' has no reason: say after it what is known to be wrong")
        if failure.requirement is not None and failure.requirement not in requirements():
            problems.append(f"line {number}: there is no requirement '{failure.requirement}'")
        if failure.place is not None and failure.place not in _PLACES:
            problems.append(f"line {number}: there is no store '{failure.place}'; there are {', '.join(_PLACES)}")
        hides_all = failure.requirement is None and failure.is_by_chance and _is_any(names.rpartition("::")[2])
        if "*" in names.partition("::")[0] or hides_all:
            problems.append(f"line {number}: '{names}' would excuse whole suites: name the tests")
        elif "::" not in (names if failure.requirement is None else "::" if failure.tests is None else failure.tests):
            problems.append(f"line {number}: '{names}' is neither a requirement id nor a test, as in test_x.py::test_y")
        meant = names.removeprefix(_BY_CHANCE)
        if meant in found:
            problems.append(f"line {number}: '{names}' stands in line {found[meant].line} already")
        found.setdefault(meant, failure)
    if problems:
        raise KnownFailingError(path, problems)
    return tuple(found.values())
