"""Small text objects: schema files and sidecars, with one contract on every store [STO-03, STO-04, STO-05].

Whatever the store is, a write replaces the whole object at once, `write_if_absent` has one winner, and
`write_if_match` answers None to whoever comes second. Paths are relative to the graph's root. Every failure of the
store leaves this module as an error of ours, without the credentials that were used.

What stores do not have in common:

- a token is the ETag on S3 and in memory, and the SHA-256 of the content on a disk. There, `write_if_match` compares
  and then replaces: safe between the threads of one process, not between processes;
- `rename` is one step on a disk and a copy followed by a delete elsewhere: a crash in between leaves both;
- a disk keeps `name#<digits>` behind when a writer dies while it writes: such names are never shown and never taken;
- a store that applies a conditional write and then loses its answer makes the winner of `write_if_absent` hear False
  or a `StorageError`. Whoever must know reads the object.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    NotModifiedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import LocalStore, MemoryStore, S3Store

from reference.errors import BadRequest, Internal, NotFound, StorageError
from reference.storage.uris import GraphRoot, S3Settings

if TYPE_CHECKING:
    from obstore import PutMode
    from obstore.store import ClientConfig, RetryConfig

_RESIDUE = re.compile(r"#\d+$")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_S3_ERROR_CODE = re.compile(r"<Code>(\w+)</Code>")
_NOT_A_DIRECTORY: Final = "(os error 20)"
_CONNECT_TIMEOUT: Final = timedelta(seconds=5)
_REQUEST_TIMEOUT: Final = timedelta(seconds=30)
_RETRY_TIMEOUT: Final = timedelta(seconds=60)
_RETRIES_MAX: Final = 8
_REMOVE_ATTEMPTS: Final = 5

_local_swap_lock = threading.Lock()
# One store for the process, as Lance's shared memory is: two handles on one name see the same objects.
_shared_memory = MemoryStore()


class TextObjects:
    """The text objects below one graph's root."""

    def __init__(self, root: GraphRoot, env: Mapping[str, str] | None = None) -> None:
        self.root = root
        self._secrets: tuple[str, ...] = ()
        self._store: LocalStore | MemoryStore | S3Store
        match root.scheme:
            case "file":
                # Rooted at `/`: to open a graph that is not there must not create its directory.
                self._store = LocalStore("/")
            case "memory":
                self._store = _shared_memory
            case "s3":
                settings = S3Settings.from_env(os.environ if env is None else env)
                self._secrets = settings.secrets
                self._store = _s3_store(root, settings)

    def __repr__(self) -> str:
        return f"TextObjects({self.root.uri!r})"

    def read(self, path: str) -> str:
        """The object's text; NotFound when there is none."""
        return self.read_versioned(path)[0]

    def read_versioned(self, path: str) -> tuple[str, str]:
        """The object's text, and a token that names this content or this write of it."""
        found = self._get(path, None)
        assert found is not None, "an unconditional read has an answer"
        return found

    def read_if_changed(self, path: str, token: str) -> tuple[str, str] | None:
        """The text and its token, or None when `token` still names what is there. One request."""
        return self._get(path, token)

    def probe(self, path: str) -> str | None:
        """The object's token, or None when there is no object. Moves no content over a network."""
        key = self._key(path)
        try:
            with self._translated("look at", path):
                if self.root.scheme == "file":
                    return _digest(bytes(obstore.get(self._store, key).bytes()))
                return _tag(obstore.head(self._store, key)["e_tag"])
        except NotFound:
            return None

    def exists(self, path: str) -> bool:
        """Whether there is an object at `path`, or any below it. A store that will not tell is an error, not a no."""
        key = self._key(path) if path else ""
        if key:
            try:
                with self._translated("look for", path):
                    obstore.head(self._store, key)
                return True
            except NotFound:
                pass
        found = False
        with self._listing(path):
            found = any(True for _ in obstore.list(self._store, self._prefix(path), chunk_size=1))
        return found

    def write(self, path: str, text: str) -> str:
        """Create or replace the object at once, and return its token."""
        return self._put(path, text, "overwrite")

    def write_if_absent(self, path: str, text: str) -> bool:
        """Create the object, and say whether it was this call that created it. Exclusive between processes."""
        try:
            self._put(path, text, "create")
        except AlreadyExistsError:
            return False
        return True

    def write_if_match(self, path: str, text: str, token: str) -> str | None:
        """Replace the object if it is still what `token` names; the new token, or None when someone was faster."""
        if self.root.scheme == "file":
            with _local_swap_lock:
                return self.write(path, text) if self.probe(path) == token else None
        try:
            return self._put(path, text, {"e_tag": token})
        except PreconditionError:
            return None

    def rename(self, source: str, target: str) -> None:
        """Move an object over whatever is at `target`. Not atomic on S3 [STO-05]."""
        source_key, target_key = self._key(source), self._key(target)
        if source_key == target_key:
            return
        with self._translated("rename", source):
            obstore.rename(self._store, source_key, target_key)

    def delete(self, path: str) -> None:
        """Remove the object; one that is gone already is fine."""
        key = self._key(path)
        try:
            with self._translated("delete", path):
                obstore.delete(self._store, key)
        except NotFound:
            pass

    def list_dir(self, path: str) -> list[str]:
        """The names of the objects directly in a directory, sorted; none when there is no such directory."""
        names: list[str] = []
        with self._listing(path):
            found = obstore.list_with_delimiter(self._store, self._prefix(path))["objects"]
            names = [meta["path"].rpartition("/")[2] for meta in found]
        return sorted(name for name in names if not _RESIDUE.search(name))

    def list_files(self, path: str) -> list[str]:
        """The paths of all objects below a directory, at any depth, sorted and relative to the root."""
        skip = len(self.root.prefix) + 1 if self.root.prefix else 0
        return sorted(key[skip:] for key in self._keys_below(path) if not _RESIDUE.search(key))

    def delete_prefix(self, path: str) -> None:
        """Remove everything below a directory, and on a disk the directory itself. Can be repeated."""
        self._key(path)
        if self.root.scheme == "file":
            with self._translated("delete", path):
                _remove_tree(Path(self.root.join(path)))
            return
        keys = self._keys_below(path)
        if keys:
            with self._translated("delete", path):
                obstore.delete(self._store, keys)

    def _get(self, path: str, unless_token: str | None) -> tuple[str, str] | None:
        key = self._key(path)
        on_disk = self.root.scheme == "file"
        try:
            with self._translated("read", path):
                options = None if on_disk or unless_token is None else {"if_none_match": unless_token}
                result = obstore.get(self._store, key, options=options)  # type: ignore[arg-type]
                content = bytes(result.bytes())
                token = _digest(content) if on_disk else _tag(result.meta["e_tag"])
        except NotModifiedError:
            return None
        if on_disk and token == unless_token:
            return None
        try:
            return content.decode(), token
        except UnicodeDecodeError as error:
            raise Internal(
                f"'{path}' is not UTF-8 text: byte {error.start}",
                code="undecodable_text",
                details={"path": path, "offset": error.start},
            ) from None

    def _put(self, path: str, text: str, mode: PutMode) -> str:
        content = text.encode()
        with self._translated("write", path, missing_is_error=True):
            # One request whatever the size: a multipart upload would be several, and cannot be conditional.
            result = obstore.put(self._store, self._key(path), content, mode=mode, use_multipart=False)
        return _digest(content) if self.root.scheme == "file" else _tag(result["e_tag"])

    def _keys_below(self, path: str) -> list[str]:
        keys: list[str] = []
        with self._listing(path):
            keys = [meta["path"] for meta in obstore.list(self._store, self._prefix(path)).collect()]
        return keys

    def _key(self, path: str) -> str:
        """The store's key for a path; refuses what would not stay below the root or would not be visible in it."""
        segments = path.split("/")
        if any(segment in ("", ".", "..") for segment in segments) or _CONTROL.search(path) or _RESIDUE.search(path):
            raise BadRequest(f"{path!r} is not the path of an object", code="invalid_path", details={"path": path})
        return f"{self.root.prefix}/{path}" if self.root.prefix else path

    def _prefix(self, path: str) -> str:
        return self._key(path) if path else self.root.prefix

    @contextmanager
    def _listing(self, path: str) -> Iterator[None]:
        """A directory that is not there lists as empty. A bucket that is not there does not."""
        try:
            with self._translated("list", path, missing_is_error=self.root.scheme == "s3"):
                yield
        except NotFound:
            pass

    @contextmanager
    def _translated(self, verb: str, path: str, *, missing_is_error: bool = False) -> Iterator[None]:
        """Turn the store's exceptions into ours. The three that answer a condition pass: they are no failures."""
        try:
            yield
        except (AlreadyExistsError, NotModifiedError, PreconditionError):
            raise
        except (BaseError, OSError, ValueError, NotImplementedError) as error:  # All of these are raised by obstore.
            self._raise(error, verb, path, missing_is_error)

    def _raise(self, error: Exception, verb: str, path: str, missing_is_error: bool) -> NoReturn:
        text = str(error)
        # Below an object there is nothing, on a disk as anywhere else.
        missing = isinstance(error, FileNotFoundError) or _NOT_A_DIRECTORY in text
        if missing and not missing_is_error:
            raise NotFound(f"'{path}' does not exist", code="object_not_found", details={"path": path}) from None
        # The first line says what happened; an S3 answer's body, after it, can repeat the key that signed the request.
        cause = text.partition("\n")[0].partition("<")[0].strip().rstrip(":")
        for secret in self._secrets:
            cause = cause.replace(secret, "***")
        details = {"path": path, "store": self.root.uri, "cause": cause}
        if code := _S3_ERROR_CODE.search(text):
            details["store_code"] = code[1]
            cause = f"{code[1]}: {cause}"
        if isinstance(error, (PermissionDeniedError, UnauthenticatedError, PermissionError)):
            raise StorageError(
                f"no permission to {verb} '{path}' in {self.root.uri}: {cause}",
                code="permission_denied",
                details=details,
                hint="check the credentials and the rights of this user",
            ) from None
        raise StorageError(
            f"could not {verb} '{path}' in {self.root.uri}: {cause}", code="object_store_failed", details=details
        ) from None


def _s3_store(root: GraphRoot, settings: S3Settings) -> S3Store:
    client: ClientConfig = {
        "allow_http": settings.allow_http,
        "connect_timeout": _CONNECT_TIMEOUT,
        "timeout": _REQUEST_TIMEOUT,
    }
    retry: RetryConfig = {"max_retries": _RETRIES_MAX, "retry_timeout": _RETRY_TIMEOUT}
    return S3Store(
        root.bucket,
        config=settings.config(),  # type: ignore[arg-type]
        client_options=client,
        retry_config=retry,
    )


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _tag(e_tag: str | None) -> str:
    if e_tag is None:
        raise StorageError("the store gives objects no ETag", code="store_without_etag", hint="use another S3 store")
    return e_tag


def _remove_tree(directory: Path) -> None:
    """Remove a directory, although another process may be removing it, or finishing a file in it, at this moment."""
    for _ in range(_REMOVE_ATTEMPTS - 1):
        try:
            return shutil.rmtree(directory)
        except NotADirectoryError:
            return
        except OSError:
            if not directory.exists():
                return
    shutil.rmtree(directory)
