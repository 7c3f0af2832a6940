"""Fragments that tasks write, and what becomes of those that nobody commits.

A task writes the rows of its piece into the table's own directory, where they mean nothing until the driver commits
them. A retry, a speculative copy or an executor that dies leaves such files behind. So each attempt notes beside the
table what it has written, under the job's id, once it is written. When the job has ended, one way or the other, the
driver removes what is noted and was not committed. Nothing is removed while the outcome of a commit is open.

Large blobs lie beside the data file that they belong to, in a directory of its name, and share its fate.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from ulid import ULID

from reference.errors import Conflict
from reference.format.names import branch_location
from reference.operations.changeset import HowToStage
from reference.storage.objects import TextObjects
from reference.storage.tables import Staged, translated
from reference.storage.uris import parse_root, storage_options_from_env

if TYPE_CHECKING:
    from reference.format.manifest import TableEntry
    from reference.protocol.store import GraphStore

NOTES_DIR: Final = "_pipeline"
JOB_NOTE: Final = "job"
DATA_SUFFIX: Final = ".lance"


@dataclass(frozen=True)
class Target:
    """A table that a task writes to: its path below the graph, the branch that owns the data, a version to open."""

    path: str
    branch: str | None
    version: int


@dataclass(frozen=True)
class Workplace:
    """The graph as a task reaches it. `env` holds the variables of its store, and is in no repr."""

    uri: str
    job: str
    mode: HowToStage
    env: Mapping[str, str] = field(default_factory=dict, repr=False)

    def objects(self) -> TextObjects:
        return TextObjects(parse_root(self.uri), self.env)

    def storage_options(self) -> dict[str, str] | None:
        root = parse_root(self.uri)
        return (storage_options_from_env(self.env) if root.scheme == "s3" else {}) or None

    def write(self, target: Target, rows: pa.Table, name: str) -> tuple[str, ...]:
        """Write rows as fragments and note them; returns the fragments, as JSON."""
        import lance
        from lance.fragment import write_fragments

        options = self.storage_options()
        root = parse_root(self.uri)
        with translated("staging rows"):
            handle = lance.dataset(
                root.join(branch_location(target.path, target.branch)), version=target.version, storage_options=options
            )
            fragments = write_fragments(
                rows,
                handle,
                schema=rows.schema,
                mode="overwrite" if self.mode == "overwrite" else "append",
                storage_options=options,
                allow_external_blob_outside_bases=True,
            )
        described = tuple(json.dumps(fragment.to_json()) for fragment in fragments)
        note = json.dumps({"branch": target.branch, "files": sorted(data_files(described))})
        self.objects().write(f"{target.path}/{NOTES_DIR}/{self.job}/{name}-{ULID()}.json", note)
        return described


def data_files(fragments: Iterable[str]) -> list[str]:
    """The names of the files of some fragments."""
    return [file["path"] for fragment in fragments for file in json.loads(fragment)["files"]]


def blobs_of(data_file: str) -> str:
    """The directory in which the large blobs of a data file are, if it has any."""
    return data_file.removesuffix(DATA_SUFFIX)


def stage(
    store: GraphStore,
    entry: TableEntry,
    branch: str | None,
    mode: HowToStage,
    schema: pa.Schema,
    fragments: Iterable[str],
    replaced: pa.Array | None,
) -> Staged:
    """One transaction of all fragments of a table, on top of its pinned version. HEAD stays where it is."""
    from lance import LanceOperation, Transaction
    from lance.fragment import FragmentMetadata

    handle = store.tables.open(entry.path, branch, entry.version)
    new = [FragmentMetadata.from_json(fragment) for fragment in fragments]
    operation: Any
    if mode == "overwrite":
        operation = LanceOperation.Overwrite(schema, new)
    elif replaced is None or not len(replaced):
        operation = LanceOperation.Append(new)
    else:
        # The two halves of a merge as one transaction: rows that are replaced go, all rows of the input come.
        deletion: Any = store.tables.stage_delete(handle, replaced).transaction.operation
        operation = LanceOperation.Update(
            removed_fragment_ids=deletion.removed_fragment_ids,
            updated_fragments=deletion.updated_fragments,
            new_fragments=new,
            fields_modified=[],
            fields_for_preserving_frag_bitmap=deletion.fields_for_preserving_frag_bitmap,
            update_mode="rewrite_rows",
        )
    return Staged(handle, Transaction(int(handle.version), operation))


# -- notes ---------------------------------------------------------------------------------------------------------


def announce(objects: TextObjects, paths: Iterable[str], job: str) -> None:
    """Say that a job is at work on some tables."""
    for path in paths:
        objects.write(f"{path}/{NOTES_DIR}/{job}/{JOB_NOTE}", "")


def refuse_if_forgotten(objects: TextObjects, paths: Iterable[str], job: str) -> None:
    """A clean-up that took the job for dead has removed its note first: then its files may be gone.

    A load looks twice: once it is armed, and once its tables are committed. A clean-up that removes the note before the
    second look is seen by it; one that removes it afterwards finds the files in a version of their table.
    """
    for path in paths:
        if objects.probe(f"{path}/{NOTES_DIR}/{job}/{JOB_NOTE}") is None:
            raise Conflict(
                "a clean-up took this load for dead and removed its files",
                code="staged_files_removed",
                hint="run it again, and clean up with an age that is longer than a load takes",
            )


def noted_files(objects: TextObjects, path: str, job: str) -> dict[str, str]:
    """The files that attempts of a job have noted for a table, as paths below the graph, by name."""
    found: dict[str, str] = {}
    for name in objects.list_dir(f"{path}/{NOTES_DIR}/{job}"):
        if name == JOB_NOTE:
            continue
        note = json.loads(objects.read(f"{path}/{NOTES_DIR}/{job}/{name}"))
        place = branch_location(path, note["branch"])
        found |= {file: f"{place}/data/{file}" for file in note["files"]}
    return found


def settle(objects: TextObjects, paths: Iterable[str], job: str, kept: Iterable[str]) -> int:
    """Remove what attempts of a job have written and nobody committed, and the notes; returns how many files."""
    winners = set(kept)
    removed = 0
    for path in paths:
        for name, file in noted_files(objects, path, job).items():
            if name not in winners:
                objects.delete(file)
                objects.delete_prefix(blobs_of(file))
                removed += 1
        forget(objects, path, job)
    return removed


def forget(objects: TextObjects, path: str, job: str) -> None:
    """Remove the notes of a job. Those of others lie beside them, and one may be written at this very moment."""
    objects.delete_prefix(f"{path}/{NOTES_DIR}/{job}")
    remove_if_empty(objects, f"{path}/{NOTES_DIR}")


def remove_if_empty(objects: TextObjects, path: str) -> None:
    """Remove a directory in which nothing is left. Only disks have such a thing, and only they can refuse it."""
    if objects.root.scheme == "file":
        with contextlib.suppress(OSError):
            Path(objects.root.join(path)).rmdir()
