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


def is_well_formed(name: str) -> bool:
    """Whether it is made of what a name may be made of, whatever else it would do."""
    parts = name.strip().split("/")
    return (
        all(re.fullmatch(r"[\w.-]+", part) for part in parts)
        and all(each.isalnum() or each in "._-" for part in parts for each in part)
        and not any(".." in part or part.endswith(".lock") for part in parts)
        and len(name.strip()) <= LENGTH_MAX
    )


def lies_inside_another(name: str) -> bool:
    """Whether its files would lie among those of another branch, or of all of them, as below `main`."""
    first, *rest = name.strip().split("/")
    return bool(rest) and (first == "main" or not STORAGE_NAMES.isdisjoint(rest))


def branch_name(name: str, *, anywhere: bool = False) -> str:
    """A name that a branch can have, trimmed; `anywhere`, also one that an engine may refuse or make: it would lie in
    the storage of another [BRA-16], or a part of it begins or ends with a dot."""
    trimmed = name.strip()
    refuse_internal(trimmed)
    dotted = any(part.startswith(".") or part.endswith(".") for part in trimmed.split("/"))
    if not is_well_formed(trimmed) or (dotted and not anywhere):
        raise bad_request("invalid_branch_name", f"{name!r} cannot be the name of a branch")
    if lies_inside_another(trimmed) and not anywhere:
        raise bad_request("branch_inside_another", f"{name!r} would lie in the storage of another branch")
    return trimmed
