"""Where a graph lies, and how to read objects there: a directory, or a prefix in an S3 bucket [STO-01, STO-02].

Only reading is possible through this module. Secrets come from the environment and go to the two libraries that need
them; `redact` takes them out of every text that an error brings back.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Protocol

import obstore
from obstore.store import S3Store

_TRUTHY: Final = frozenset({"1", "true", "TRUE", "True", "yes", "YES", "on", "ON"})
_SECRETS: Final = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ACCESS_KEY_ID")
# Lance ends its messages with the file and line of its own source, and with the same again for each cause.
_SOURCE_LINES: Final = re.compile(r",? ?/?[\w./-]*/[\w-]+\.rs:\d+(:\d+)?")
_USER_INFO: Final = re.compile(r"(://)[^/@\s]*@")
_MESSAGE_LENGTH_MAX: Final = 300


class InvalidUri(ValueError):
    """The text does not name a place where a graph can be."""


class ReadFailed(Exception):
    """The store did not answer, or refused. The text is fit to be shown."""


@dataclass(frozen=True)
class Listing:
    """What is directly in a directory; both lists are empty when it does not exist."""

    dirs: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


class Objects(Protocol):
    """The few ways in which the auditor looks at objects that are no tables."""

    def children(self, path: str) -> Listing: ...

    def holds(self, path: str) -> bool:
        """Whether a directory is one: some object stores go on listing a folder, for a while or for ever, in which
        nothing is left. Ask before a directory is blamed for being there.
        """

    def read(self, path: str) -> bytes | None: ...


@dataclass(frozen=True)
class Root:
    """The place of a graph: `uri` has no trailing slash, and `storage_options` are what Lance needs to get in."""

    uri: str
    bucket: str | None = None
    prefix: str = ""
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)

    def join(self, path: str) -> str:
        return f"{self.uri.rstrip('/')}/{path}"

    def holds(self, address: str) -> bool:
        """Whether an absolute address, as Lance or a sidecar records it, lies below this root."""
        return _below(_plain(address), self.uri) or (
            self.bucket is None and _below(os.path.realpath(_plain(address)), os.path.realpath(self.uri))
        )

    def redact(self, error: object) -> str:
        """The text of an error, short, without secrets and without lines of somebody's source."""
        text = _USER_INFO.sub(r"\1***@", str(error))
        for secret in self.secrets:
            text = text.replace(secret, "***")
        text = " ".join(_SOURCE_LINES.sub("", text).split()) or type(error).__name__
        return text if len(text) <= _MESSAGE_LENGTH_MAX else f"{text[:_MESSAGE_LENGTH_MAX]}…"

    def objects(self) -> Objects:
        if self.bucket is None:
            return LocalObjects(Path(self.uri), self)
        options = dict(self.storage_options)
        client_options: Any = {"allow_http": True} if options.pop("allow_http", None) else {}
        retry: Any = {"max_retries": 3, "retry_timeout": timedelta(seconds=20)}
        store = S3Store(self.bucket, config=options, client_options=client_options, retry_config=retry)  # type: ignore[arg-type]
        return S3Objects(store, self)


def parse_root(text: str, env: Mapping[str, str] | None = None) -> Root:
    """Read a URI as a person writes it: a path, `file://…` or `s3://bucket/prefix`."""
    scheme, marker, rest = text.partition("://")
    if not text.strip():
        raise InvalidUri("the URI is empty: name a directory or s3://bucket/prefix")
    if not marker or scheme == "file":
        path = rest if marker else text
        if marker and not path.startswith("/"):
            raise InvalidUri("a file:// URI names an absolute path: file:///path/to/graph")
        return Root("/" + os.path.abspath(path).lstrip("/"))
    if scheme != "s3":
        raise InvalidUri(f"'{scheme}://' is not known: use a path, file:// or s3://")
    bucket, _, prefix = rest.partition("/")
    if not bucket or "@" in bucket:
        raise InvalidUri("write s3://bucket/prefix; keys come from the environment, never from the URI")
    prefix = prefix.strip("/")
    env = os.environ if env is None else env
    secrets = tuple(env[name] for name in _SECRETS if env.get(name))
    uri = f"s3://{bucket}/{prefix}" if prefix else f"s3://{bucket}"
    return Root(uri, bucket, prefix, _storage_options(env), secrets)


def _storage_options(env: Mapping[str, str]) -> dict[str, str]:
    endpoint = env.get("AWS_ENDPOINT_URL_S3") or env.get("AWS_ENDPOINT_URL")
    options = {
        "aws_endpoint": endpoint,
        # The process's own AWS_ENDPOINT_URL_S3 would beat `aws_endpoint`; this name beats both.
        "aws_endpoint_url_s3": endpoint,
        "aws_region": env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION") or ("us-east-1" if endpoint else None),
        "aws_access_key_id": env.get("AWS_ACCESS_KEY_ID"),
        "aws_secret_access_key": env.get("AWS_SECRET_ACCESS_KEY"),
        "aws_session_token": env.get("AWS_SESSION_TOKEN"),
    }
    if env.get("AWS_S3_FORCE_PATH_STYLE", "") in _TRUTHY:
        options["aws_virtual_hosted_style_request"] = "false"
    if env.get("AWS_ALLOW_HTTP", "") in _TRUTHY or (endpoint or "").startswith("http://"):
        options["allow_http"] = "true"
    return {name: value for name, value in options.items() if value}


def _plain(address: str) -> str:
    """An address without its `file://`, if it has one."""
    return address.removeprefix("file://").rstrip("/")


def _below(address: str, root: str) -> bool:
    return address == root or address.startswith(f"{root.rstrip('/')}/")


@dataclass(frozen=True)
class LocalObjects:
    """Objects in a directory. Everything is listed, also what an object store would hide."""

    directory: Path
    root: Root

    def children(self, path: str) -> Listing:
        try:
            with os.scandir(self.directory / path) as entries:
                found = sorted((entry.name, entry.is_dir()) for entry in entries)
        except (FileNotFoundError, NotADirectoryError):
            return Listing()
        except OSError as error:
            raise ReadFailed(self.root.redact(error)) from error
        return Listing(
            tuple(name for name, is_dir in found if is_dir), tuple(name for name, is_dir in found if not is_dir)
        )

    def holds(self, path: str) -> bool:
        return (self.directory / path).is_dir()

    def read(self, path: str) -> bytes | None:
        try:
            return (self.directory / path).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise ReadFailed(self.root.redact(error)) from error


@dataclass(frozen=True)
class S3Objects:
    """Objects below a prefix of a bucket."""

    store: S3Store
    root: Root

    def _key(self, path: str) -> str:
        return f"{self.root.prefix}/{path}".strip("/")

    def children(self, path: str) -> Listing:
        prefix = self._key(path)
        try:
            found = obstore.list_with_delimiter(self.store, prefix or None)
        except Exception as error:
            raise ReadFailed(self.root.redact(error)) from error
        dirs = (each.rstrip("/").rpartition("/")[2] for each in found["common_prefixes"])
        files = (each["path"].rpartition("/")[2] for each in found["objects"])
        return Listing(tuple(sorted(dirs)), tuple(sorted(files)))

    def holds(self, path: str) -> bool:
        try:
            return any(obstore.list(self.store, self._key(path), chunk_size=1))
        except Exception as error:
            raise ReadFailed(self.root.redact(error)) from error

    def read(self, path: str) -> bytes | None:
        try:
            return bytes(obstore.get(self.store, self._key(path)).bytes())
        except FileNotFoundError:
            return None
        except Exception as error:
            raise ReadFailed(self.root.redact(error)) from error
