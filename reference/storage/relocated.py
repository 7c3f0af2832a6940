"""Reading branches of a graph that was copied or moved.

Lance writes the full address of its source into every version of a branch, so a branch of a moved graph points to
where the graph was. What it points to lies at the same place below the new root. So such a version is read through a
view: a manifest in memory with the same fragments, whose addresses are the new ones. Nothing on the store is changed,
nothing can be written through a view, and a view has no stable row ids, so nobody mistakes its rows' history.
"""

from __future__ import annotations

import json
import uuid
from typing import Any

from lance import DatasetBasePath, LanceDataset, LanceOperation
from lance.fragment import FragmentMetadata


def moved_bases(handle: LanceDataset, path: str, location: str) -> dict[int, str]:
    """The bases of a dataset that lie elsewhere now: each by its id, with its new address.

    `path` is the dataset's place below the graph's root, `location` its full address without a branch.
    """
    found: dict[int, str] = {}
    for base_id, base in handle.base_paths().items():
        before, marker, below = base.path.rpartition(f"/{path}")
        if marker and f"{before}{marker}".removeprefix("file://") != location:
            found[base_id] = location + below
    return found


def view_of(handle: LanceDataset, bases: dict[int, str]) -> LanceDataset:
    """The same rows, read from where they are now."""
    kept = {base_id: base.path for base_id, base in handle.base_paths().items()}
    # Base ids begin at 1 here: 0 would mean the view itself.
    addresses = [*dict.fromkeys([handle.uri, *({**kept, **bases}).values()])]
    number = {address: index for index, address in enumerate(addresses, 1)}
    new_ids = {base_id: number[bases.get(base_id, address)] for base_id, address in kept.items()}
    described = {fragment.fragment_id: fragment.metadata.to_json() for fragment in handle.get_fragments()}
    for fragment in described.values():
        fragment |= dict.fromkeys(("row_id_meta", "created_at_version_meta", "last_updated_at_version_meta"))
        for file in [*fragment["files"], *filter(None, [fragment["deletion_file"]])]:
            old = file.get("base_id")
            file["base_id"] = number[handle.uri] if old is None else new_ids[old]
    if not described:
        return handle
    # An overwrite numbers its fragments from 0 and takes no deletions, and a deletion is found by its fragment's
    # number. So every number gets a fragment first; then those that are not there go, and the deletions come.
    filler = next(iter(described.values()))
    numbered = [described.get(index, filler) for index in range(max(described) + 1)]
    whole = [_metadata({**fragment, "deletion_file": None}) for fragment in numbered]
    reduced = [_metadata(fragment) for fragment in described.values() if fragment["deletion_file"]]
    absent = [index for index in range(len(numbered)) if index not in described]
    view = LanceDataset.commit(
        f"shared-memory://view-{uuid.uuid4().hex}",
        LanceOperation.Overwrite(
            handle.schema,
            whole,
            initial_bases=[DatasetBasePath(address, None, True, index) for address, index in number.items()],
        ),
    )
    return LanceDataset.commit(view, LanceOperation.Delete(reduced, absent, "false"), read_version=view.version)


def _metadata(described: dict[str, Any]) -> FragmentMetadata:
    return FragmentMetadata.from_json(json.dumps(described))
