"""What lies in the root of a graph, and in its table directories [LAY].

Everything that the format names is checked elsewhere; here is said what must not be there, and what nobody refers to.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Final

from conformance.audit.findings import Findings
from conformance.audit.names import (
    AUDIT_DIR,
    LEGACY_DIRS,
    MANIFEST_DIR,
    RECOVERY_DIR,
    SCHEMA_FILES,
    STAGING_FILES,
    TABLE_DIRS,
)
from conformance.audit.places import Listing, Objects
from conformance.audit.sidecars import Sidecars

_KNOWN_DIRS: Final = frozenset({MANIFEST_DIR, RECOVERY_DIR, AUDIT_DIR, *TABLE_DIRS.values()})
_HASH: Final = re.compile(r"[0-9a-f]{16}")
_TREE: Final = "tree"
_VERSIONS: Final = "_versions"
_LANCE_DIRS: Final = frozenset({"_versions", "_transactions", "_deletions", "_indices", "data"})


def check_root(found: Findings, objects: Objects, top: Listing, sidecars: Sidecars) -> None:
    """The names directly below the root [LAY-01, LAY-08, LAY-10]."""
    for name in top.dirs:
        if name in _KNOWN_DIRS or not objects.holds(name):
            continue
        if name in LEGACY_DIRS:
            found.add("legacy-table", name, f"{name} belongs to a retired generation of the format")
        else:
            found.add("unknown-file", name, f"the directory {name} is not part of the format")
    staged = [name for name in top.files if name in STAGING_FILES]
    if staged and not sidecars.schema_apply:
        message = "staged schema files lie there without a sidecar of a schema apply"
        found.add("staging-residue", staged[0], message, files=staged)
    for name in top.files:
        if name not in SCHEMA_FILES and name not in STAGING_FILES:
            found.add("unknown-file", name, f"the file {name} is not part of the format")


def check_table_directories(found: Findings, objects: Objects, locations: Collection[str], sidecars: Sidecars) -> None:
    """Each dataset in `nodes` and `edges` is the table of some manifest row, or nobody reads it [LAY-02]."""
    expected = {*locations, *sidecars.registered_paths()}
    for directory in TABLE_DIRS.values():
        listing = objects.children(directory)
        for name in listing.dirs:
            path = f"{directory}/{name}"
            is_hash = _HASH.fullmatch(name) is not None
            if (is_hash and path in expected) or not objects.holds(path):
                continue
            if not is_hash:
                found.add("unknown-file", path, "the directory's name is not the hash of a type's name")
            else:
                found.add("unreferenced-table", path, "no manifest has a table here: a schema apply was rolled back")
        for name in listing.files:
            found.add("unknown-file", f"{directory}/{name}", "tables are directories; this is a file")


def check_branch_residue(found: Findings, objects: Objects, path: str, forks: Iterable[str]) -> None:
    """Files of branches that have no ref: they block a branch of that name, and nobody reads them [BRA-02]."""
    known = set(forks)
    for name in _branch_directories(objects, f"{path}/{_TREE}", ""):
        where = f"{path}/{_TREE}/{name}"
        if name not in known and objects.holds(where):
            found.add("branch-residue", where, f"there are files of a branch '{name}' and no ref to it")


def _branch_directories(objects: Objects, path: str, prefix: str) -> list[str]:
    """The directories below `tree` that hold versions; the name of a branch may itself be a path [LAY-05]."""
    names: list[str] = []
    for name in objects.children(path).dirs:
        below = objects.children(f"{path}/{name}")
        if _VERSIONS in below.dirs:
            names.append(f"{prefix}{name}")
        if set(below.dirs) - _LANCE_DIRS:
            names += _branch_directories(objects, f"{path}/{name}", f"{prefix}{name}/")
    return names
