"""Every failure of the engine, as a typed value.

A caller (a person, a driver, a conformance judge) decides what to do by `kind`, finds out why by `code` and
`details`, and reads `message` and `hint`. The kinds map onto the steps of a write like this:

    step                                            what can go wrong                       kind
    ----------------------------------------------  --------------------------------------  ---------------
    read the request, the schema, the records        it is malformed or breaks a rule         bad_request
    look up a branch, a commit, a table              it is not there                          not_found
    compare with what others have committed          someone was faster, or holds a lock      conflict
    publish or recover after a HEAD has moved        nobody knows yet: recovery decides       outcome_pending
    decode what is on disk                           an invariant of the format is broken     internal
    talk to the object store                         the store said no                        storage

An error of kind `bad_request`, `not_found` or `conflict` means that the operation did not happen and never will
[PUB-23]. `outcome_pending` is the only kind that leaves that open.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar


class OmniError(Exception):
    """A failure with a kind, a code, details a program can read, and words a person can act on."""

    kind: ClassVar[str] = "internal"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        details: Mapping[str, Any] | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.kind
        self.details: dict[str, Any] = dict(details or {})
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message} ({self.hint})"

    def to_json(self) -> dict[str, Any]:
        """The error as the driver protocol and `--json` carry it."""
        body: dict[str, Any] = {"kind": self.kind, "code": self.code, "message": self.message}
        if self.details:
            body["details"] = self.details
        if self.hint is not None:
            body["hint"] = self.hint
        return body


class BadRequest(OmniError):
    """The request itself is wrong; nothing was read or written because of it that could matter."""

    kind = "bad_request"


class NotFound(OmniError):
    """The named branch, commit, table or snapshot does not exist."""

    kind = "not_found"


class Conflict(OmniError):
    """Someone else's committed state, or a lock, stands in the way; nothing of this operation is visible."""

    kind = "conflict"


class OutcomePending(OmniError):
    """A HEAD has moved and the publish is not confirmed: recovery will decide whether the operation happened."""

    kind = "outcome_pending"


class Internal(OmniError):
    """What is on disk contradicts the format, or a promise of this engine is broken."""

    kind = "internal"


class StorageError(OmniError):
    """The object store or Lance failed in a way that says nothing about the request."""

    kind = "storage"


class ExpectedVersionMismatch(Conflict):
    """The manifest pins another version of a table than the writer built on [PUB-03]."""

    def __init__(self, table_key: str, expected: int, actual: int) -> None:
        super().__init__(
            f"'{table_key}' is at version {actual} in the manifest, not at {expected} as this operation assumed",
            code="expected_version_mismatch",
            details={"table_key": table_key, "expected": expected, "actual": actual},
            hint="refresh and retry",
        )


class RowLevelCasContention(Conflict):
    """Another publish changed the same `__manifest` row first [PUB-06]."""

    def __init__(self, cause: str) -> None:
        super().__init__(
            f"another writer published to this branch first: {cause}",
            code="row_level_cas_contention",
            hint="retry the operation",
        )


class CommitConflict(Conflict):
    """A staged table transaction cannot land on the HEAD it found."""

    def __init__(self, what: str, cause: str, *, retryable: bool) -> None:
        super().__init__(
            f"{what} was changed by another writer: {cause}",
            code="table_commit_conflict",
            details={"retryable": retryable},
            hint="refresh and retry",
        )
        self.retryable = retryable


class MergeConflicts(Conflict):
    """A merge that found conflicting rows; nothing was published [MRG-02, MRG-03]."""

    def __init__(self, conflicts: list[dict[str, Any]]) -> None:
        first = conflicts[0]["message"] if conflicts else "unknown"
        more = f" and {len(conflicts) - 1} more" if len(conflicts) > 1 else ""
        super().__init__(
            f"the branches conflict: {first}{more}",
            code="merge_conflicts",
            details={"conflicts": conflicts},
            hint="change one of the two branches and merge again",
        )


class InjectedFailure(BadRequest):
    """A named failpoint was armed with `error` and the protocol reached it."""

    def __init__(self, name: str) -> None:
        super().__init__(f"failpoint '{name}' was reached", code="injected_failpoint", details={"failpoint": name})
