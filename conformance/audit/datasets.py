"""The Lance datasets of a graph, opened to be looked at: each version at most once, all through one session.

A dataset is named by its path below the root and by the branch that owns its storage (None is main). Three things can
stand in the way of reading one, and they mean different things to an audit, so each has an error of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import lance
import pyarrow as pa
from lance import LanceDataset
from lance.lance import _Session as Session

from conformance.audit.findings import Findings
from conformance.audit.names import storage_path
from conformance.audit.places import Root

_READ_ERRORS: Final = (OSError, ValueError, RuntimeError, KeyError, TypeError, AttributeError)
_PANIC: Final = "PanicException"
OPENED_AT_ONCE: Final = 8
FILE_VERSION: Final = "2.2"
AUTO_CLEANUP_PREFIX: Final = "lance.auto_cleanup."


class DatasetMissing(Exception):
    """There is no such dataset, branch or version."""


class DatasetUnreadable(Exception):
    """It is there, or should be, and could not be read."""


class DatasetMoved(Exception):
    """Its versions name files below another root: the graph was copied, and Lance keeps absolute addresses."""


@dataclass(frozen=True)
class Fork:
    """A branch of a dataset, as Lance knows it."""

    name: str
    parent_branch: str | None
    parent_version: int


@dataclass
class Datasets:
    """Opens datasets, and remembers every answer, also those that were refusals."""

    root: Root
    _session: Any = field(default_factory=Session)
    _held: dict[tuple[str, str | None, int | None], LanceDataset | Exception] = field(default_factory=dict)
    _forks: dict[str, Mapping[str, Fork] | Exception] = field(default_factory=dict)

    def head(self, path: str, branch: str | None) -> LanceDataset:
        """The latest version."""
        return self._open(path, branch, None)

    def warm(self, places: Iterable[tuple[str, str | None]]) -> None:
        """Open the latest versions of many datasets at the same time; who asks for one later gets its answer."""
        wanted = [(path, branch, None) for path, branch in places if (path, branch, None) not in self._held]
        with ThreadPoolExecutor(OPENED_AT_ONCE) as pool:
            self._held.update(zip(wanted, pool.map(lambda key: self._answer(*key), wanted), strict=True))

    def at(self, path: str, branch: str | None, version: int) -> LanceDataset:
        """One version; the handle on the latest serves for it too."""
        latest = self._held.get((path, branch, None))
        if isinstance(latest, LanceDataset) and latest.version == version:
            return latest
        return self._open(path, branch, version)

    def latest_version(self, path: str, branch: str | None) -> int:
        """Asked anew, past everything that is held."""
        with self.reading(storage_path(path, branch)):
            return int(self.head(path, branch).latest_version)

    def _open(self, path: str, branch: str | None, version: int | None) -> LanceDataset:
        key = (path, branch, version)
        if key not in self._held:
            self._held[key] = self._answer(path, branch, version)
        answer = self._held[key]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _answer(self, path: str, branch: str | None, version: int | None) -> LanceDataset | Exception:
        try:
            return self._fetch(path, branch, version)
        except (DatasetMissing, DatasetUnreadable, DatasetMoved) as error:
            return error

    def _fetch(self, path: str, branch: str | None, version: int | None) -> LanceDataset:
        place = storage_path(path, branch)
        options = dict(self.root.storage_options) or None
        with self.reading(place):
            handle = lance.dataset(
                self.root.join(place), version=version, storage_options=options, session=self._session
            )
            bases = [base.path for base in handle.base_paths().values()]
        elsewhere = [base for base in bases if not self.root.holds(base)]
        if elsewhere:
            raise DatasetMoved(f"{place} refers to {elsewhere[0]}")
        return handle

    def forks(self, path: str) -> Mapping[str, Fork]:
        """The branches of a dataset, by name."""
        if path not in self._forks:
            try:
                with self.reading(f"the branches of {path}"):
                    listed = self.head(path, None).branches.list()
                    self._forks[path] = {
                        name: Fork(name, ref["parent_branch"], int(ref["parent_version"]))
                        for name, ref in sorted(listed.items())
                    }
            except (DatasetMissing, DatasetUnreadable, DatasetMoved) as error:
                self._forks[path] = error
        answer = self._forks[path]
        if isinstance(answer, Exception):
            raise answer
        return answer

    @contextmanager
    def reading(self, what: str) -> Iterator[None]:
        """Turns whatever Lance and Arrow raise into one of the errors above, with words that can be shown."""
        try:
            yield
        except BaseException as error:
            # A panic of Lance is no `Exception`, and its type is nobody's to import.
            if not isinstance(error, (pa.ArrowException, *_READ_ERRORS)) and type(error).__name__ != _PANIC:
                raise
            text = self.root.redact(error)
            kind = DatasetMissing if "Dataset at path" in text and "was not found" in text else DatasetUnreadable
            raise kind(f"{what}: {text}") from error


def check_settings(found: Findings, handle: LanceDataset, where: str) -> None:
    """What holds for every dataset of a graph [LAY-06]."""
    if not handle.has_stable_row_ids:
        found.add("stable-row-ids", where, "the dataset was created without stable row ids")
    if handle.data_storage_version != FILE_VERSION:
        found.add(
            "file-version",
            where,
            f"the files have version {handle.data_storage_version}, not {FILE_VERSION}",
            actual=handle.data_storage_version,
        )
    names = sorted(name for name in handle.config() if name.startswith(AUTO_CLEANUP_PREFIX))
    if names:
        found.add("auto-cleanup", where, "Lance would remove old versions by itself on a commit", config=names)
    found.checked["datasets"] += 1
