"""Names that a branch can have [BRA-02, BRA-03, BRA-16]."""

from __future__ import annotations

import re
from typing import Final

from conformance.model.errors import bad_request

LOCK_BRANCH: Final = "__schema_apply_lock__"
LENGTH_MAX: Final = 200
# Parts of a branch's path that would lie inside the files of another branch.
STORAGE_NAMES: Final = frozenset({"data", "tree", "_versions", "_transactions", "_deletions", "_indices", "_refs"})


def refuse_internal(*names: str) -> None:
    for name in names:
        if name.strip().lstrip("/") == LOCK_BRANCH:
            raise bad_request("internal_branch", f"{name!r} is nobody's to use")


def branch_name(name: str, *, anywhere: bool = False) -> str:
    """A name that a branch can have, trimmed; `anywhere`, also one that would lie in the storage of another."""
    trimmed = name.strip()
    refuse_internal(trimmed)
    parts = trimmed.split("/")
    for part in parts:
        letters = re.fullmatch(r"[\w.-]+", part) and all(each.isalnum() or each in "._-" for each in part)
        if not letters or ".." in part or part.startswith(".") or part.endswith((".", ".lock")):
            raise bad_request("invalid_branch_name", f"{name!r} cannot be the name of a branch")
    if len(trimmed) > LENGTH_MAX:
        raise bad_request("invalid_branch_name", f"{name!r} cannot be the name of a branch")
    if STORAGE_NAMES & set(parts[1:]) and not anywhere:
        raise bad_request("branch_inside_another", f"{name!r} would lie in the storage of another branch")
    return trimmed
