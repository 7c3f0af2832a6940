"""Clean-up after jobs that cannot clean up after themselves: a driver that was killed, an attempt that was cut short.

A data file that no version of any branch of its table refers to is an orphan, or the work of a writer that has not
committed yet. Only age tells the two apart: a file, and the job that noted it, must be older than any write takes.

A load that runs for longer than that is not hurt by it. Each side announces itself before it looks for the other: a
clean-up removes the notes, then looks for loads that are committing, and then for files that no version refers to; a
load puts its sidecar and looks for its note, commits its tables and looks again. So either the load is refused, or the
clean-up is, or it finds the files where they belong.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow.fs
from ulid import ULID

from reference.errors import BadRequest
from reference.format.names import branch_location, table_path
from reference.pipeline.inputs import Place
from reference.pipeline.staging import DATA_SUFFIX, JOB_NOTE, NOTES_DIR, forget, remove_if_empty
from reference.protocol.recovery import heal
from reference.protocol.schema_lock import refuse_during_schema_apply
from reference.protocol.sidecars import busy
from reference.protocol.store import GraphStore

DATA_DIR = "data"
AGE_MIN = datetime.timedelta(hours=1)


@dataclass(frozen=True)
class Cleaned:
    """What was removed, or in a preview would be removed, of one table."""

    table_key: str
    files: int
    bytes: int
    jobs: int

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


def clean(store: GraphStore, *, older_than: datetime.timedelta, confirm: bool = False) -> list[Cleaned]:
    """Remove the orphans of every table; without `confirm`, only say what would go."""
    if older_than < AGE_MIN:
        raise BadRequest(
            f"files younger than {AGE_MIN} may be those of a write under way",
            code="clean_too_young",
            hint="wait longer",
        )
    refuse_during_schema_apply(store.manifests, "clean")
    return clean_before(store, datetime.datetime.now(datetime.UTC) - older_than, confirm=confirm)


def clean_before(store: GraphStore, limit: datetime.datetime, *, confirm: bool) -> list[Cleaned]:
    """Remove orphans that were written before a moment."""
    keys = sorted(store.manifests.fresh(None).state.entries())
    # All notes go first: then no load that is still at it can commit what goes afterwards.
    notes = {key: list(_old_jobs(store, table_path(key), limit)) for key in keys}
    if confirm:
        _refuse_during_loads(store)  # Before anything is touched: the load goes on.
        for key, jobs in notes.items():
            for job in jobs:
                store.objects.delete(f"{table_path(key)}/{NOTES_DIR}/{job}/{JOB_NOTE}")
        _refuse_during_loads(store)
    return [_clean_table(store, key, notes[key], limit, confirm) for key in keys]


def _refuse_during_loads(store: GraphStore) -> None:
    """Refuse while a load is committing, or what one has left is not settled yet: its files are nobody's so far."""
    heal(store)
    for sidecar in store.sidecars.pending():
        if sidecar.writer_kind == "Load":
            raise busy(sidecar, alive=store.sidecars.presumed_alive(sidecar))


def _old_jobs(store: GraphStore, path: str, limit: datetime.datetime) -> Iterator[str]:
    prefix = f"{path}/{NOTES_DIR}/"
    jobs = {name.removeprefix(prefix).split("/")[0] for name in store.objects.list_files(prefix.rstrip("/"))}
    for job in sorted(jobs):
        try:
            began = ULID.from_str(job).datetime
        except ValueError:
            continue  # Nothing of ours.
        if began < limit:
            yield job


def _clean_table(store: GraphStore, key: str, jobs: list[str], limit: datetime.datetime, confirm: bool) -> Cleaned:
    path = table_path(key)
    old = _old_files(store, path, limit)
    kept = _referenced(store, path) if old else frozenset()
    orphans = {file: size for file, size in old.items() if _owner_of(file) not in kept}
    if confirm:
        for file in orphans:
            store.objects.delete(file)
        for directory in {file.rpartition("/")[0] for file in orphans}:
            if not directory.endswith(f"/{DATA_DIR}"):
                remove_if_empty(store.objects, directory)
        for job in jobs:
            forget(store.objects, path, job)
    return Cleaned(key, len(orphans), sum(orphans.values()), len(jobs))


def _owner_of(file: str) -> str:
    """The name of the data file that a file is, or to which it belongs as a large blob."""
    inside = file.rpartition(f"/{DATA_DIR}/")[2]
    directory, _, _ = inside.rpartition("/")
    return f"{directory}{DATA_SUFFIX}" if directory else inside


def _old_files(store: GraphStore, path: str, limit: datetime.datetime) -> dict[str, int]:
    """The data files of a table and its branches that were written before a moment, with their sizes."""
    found: dict[str, int] = {}
    for branch in [None, *store.tables.branches(path)]:
        directory = f"{branch_location(path, branch)}/{DATA_DIR}"
        place = Place.of(store.root.join(directory), store.env)
        selector = pyarrow.fs.FileSelector(place.path, recursive=True, allow_not_found=True)
        for info in place.system().get_file_info(selector):
            if info.type == pyarrow.fs.FileType.File and info.mtime < limit:
                found[f"{directory}{info.path.removeprefix(place.path)}"] = int(info.size)
    return found


def _referenced(store: GraphStore, path: str) -> frozenset[str]:
    """The names of all data files of all versions of all branches of a table."""
    names: set[str] = set()
    for branch in [None, *store.tables.branches(path)]:
        latest = store.tables.open_latest(path, branch)
        for version in store.tables.run(path, latest.versions):
            handle = store.tables.open(path, branch, int(version["version"]))
            for fragment in handle.get_fragments():
                names |= {file.path for file in fragment.metadata.files}
    return frozenset(names)
