"""The registry: every requirement by its id, from `requirements.toml`.

Tests name the ids that they check, reports and the spec are made from the sentences, and a capability says which
engines a requirement is for. The file is checked as a whole when it is read, and everything that is wrong with it is
said at once, with the line.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, get_args

REQUIREMENTS_FILE: Final = Path(__file__).parent / "requirements.toml"

Level = Literal["must", "should", "gap"]
Capability = Literal[
    "core",
    "branches",
    "merge",
    "time_travel",
    "schema",
    "maintenance",
    "recovery",
    "storage",
    "export",
    "diff",
    "server",
    "cost",
]
SOURCES: Final = ("S000", "S001", "S002", "S003", "S004", "release 0.8.0", "catalog", "derived")

_ID: Final = re.compile(r"[A-Z]{3,4}-\d\d")
_REQUIRED: Final = ("id", "group", "level", "capability", "sentence", "source")


@dataclass(frozen=True)
class Requirement:
    """One thing that an engine must do, in one sentence."""

    id: str
    group: str
    level: Level
    capability: Capability
    sentence: str
    source: tuple[str, ...]
    note: str | None = None


class RegistryError(ValueError):
    """A file of requirements that cannot be used: each problem with its place."""

    def __init__(self, path: Path, problems: list[str]) -> None:
        super().__init__("\n".join(f"{path.name}: {problem}" for problem in problems))
        self.path = path
        self.problems = tuple(problems)


@cache
def requirements() -> Mapping[str, Requirement]:
    """The project's requirements by id, in the order of the file."""
    return MappingProxyType({each.id: each for each in load_requirements(REQUIREMENTS_FILE)})


def load_requirements(path: Path) -> tuple[Requirement, ...]:
    """Read and check a file of requirements."""
    try:
        text = path.read_text(encoding="utf-8")
        document = tomllib.loads(text)
    except FileNotFoundError:
        raise RegistryError(path, [f"there is no such file in {path.parent}"]) from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise RegistryError(path, [f"this is not TOML: {error}"]) from None
    entries = document.get("requirement")
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise RegistryError(path, ["there is no [[requirement]] in it"])
    lines = [number for number, line in enumerate(text.split("\n"), 1) if line.strip() == "[[requirement]]"]
    lines += [0] * (len(entries) - len(lines))  # Spelled in another way, an entry has no line to point at.
    problems = [f"'{name}' is nothing that belongs here" for name in document if name != "requirement"]
    line_by_id: dict[str, int] = {}
    for entry, line in zip(entries, lines, strict=False):
        place = f"line {line}, {entry.get('id', 'a requirement without id')}"
        problems += [f"{place}: {problem}" for problem in _problems(entry)]
        first = line_by_id.setdefault(str(entry.get("id")), line)
        if first != line:
            problems.append(f"{place}: this id is that of line {first} already")
    if problems:
        raise RegistryError(path, problems)
    return tuple(Requirement(**{**entry, "source": tuple(entry["source"])}) for entry in entries)


def _problems(entry: Mapping[str, Any]) -> Iterator[str]:
    missing = [name for name in _REQUIRED if name not in entry]
    unknown = sorted(entry.keys() - {*_REQUIRED, "note"})
    yield from (f"'{name}' is missing" for name in missing)
    yield from (f"'{name}' is not a field of a requirement" for name in unknown)
    if missing or unknown:
        return
    if not isinstance(entry["id"], str) or not _ID.fullmatch(entry["id"]):
        yield f"the id is {entry['id']!r}, and should look like PUB-08"
    elif entry["group"] != entry["id"].partition("-")[0]:
        yield f"the group is {entry['group']!r}, which is not that of the id"
    for name, known in (("level", get_args(Level)), ("capability", get_args(Capability))):
        if entry[name] not in known:
            yield f"the {name} is {entry[name]!r}, and should be one of {', '.join(known)}"
    for name in ("sentence", "note"):
        text = entry.get(name, "A note may be missing.")
        if not isinstance(text, str) or not text.strip().endswith(".") or text != text.strip() or "\n" in text:
            yield f"the {name} is {text!r}, and should be one line that ends with a period"
    source = entry["source"]
    if not isinstance(source, list) or not source or any(each not in SOURCES for each in source):
        yield f"the source is {source!r}, and should be a list of some of {', '.join(SOURCES)}"
