"""Where a graph lives, and how to get in: root URIs and the settings of an S3 store [STO-01, STO-02].

A root is a local directory, a prefix in an S3 bucket, or a name in this process's memory. Text that could mean two
things to the two libraries that will read it (Lance and obstore) is refused here, before either of them sees it.
Secrets come in through the environment and go out to those libraries; they are in no repr and in no error.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal
from urllib.parse import urlsplit

from reference.errors import BadRequest

Scheme = Literal["file", "s3", "memory"]

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_USER_INFO = re.compile(r"(://)[^/]*@")
_TRUTHY: Final = frozenset({"1", "true", "TRUE", "True", "yes", "YES", "on", "ON"})
# Lance calls a store that outlives one handle by this name; plain `memory://` is a new store at every open.
_MEMORY_SCHEME: Final = "shared-memory"


@dataclass(frozen=True)
class GraphRoot:
    """The place of one graph. `uri` is its one normal spelling: no trailing slash, nothing left to fold."""

    scheme: Scheme
    uri: str
    bucket: str | None = None
    prefix: str = ""

    @property
    def path(self) -> str:
        """The directory of a local graph."""
        if self.scheme != "file":
            raise ValueError(f"{self.uri} is not a local directory")
        return self.uri

    def join(self, relative: str) -> str:
        """The full URI of a path below the root, as Lance opens it and as sidecars name it."""
        return f"{self.uri.rstrip('/')}/{relative}" if relative else self.uri


def parse_root(text: str) -> GraphRoot:
    """Read a root as a person writes it: a path, `file://…`, `s3://bucket/prefix` or `memory://name`."""
    if not text.strip():
        raise _invalid(text, "is empty", "name a directory or s3://bucket/prefix")
    if _CONTROL.search(text):
        raise _invalid(text, "contains a control character", "remove it")
    matched = _SCHEME.fullmatch(text)
    if matched is None:
        return _local(text)
    scheme, rest = matched[1].lower(), matched[2]
    if scheme not in ("file", "s3", "memory", _MEMORY_SCHEME):
        raise _invalid(text, f"has the unknown scheme '{scheme}'", "use a local path, file:// or s3://")
    if ambiguous := next((character for character in "%?#" if character in rest), None):
        raise _invalid(text, f"contains '{ambiguous}'", "write the name itself, unescaped, without a query")
    if scheme == "file":
        host, slash, path = rest.partition("/")
        if host not in ("", "localhost") or not slash:
            raise _invalid(text, "names no absolute path", "write file:///absolute/path")
        return _local(slash + path)
    first, _, remainder = rest.partition("/")
    prefix = _checked_prefix(text, remainder)
    if scheme == "s3":
        if not _BUCKET.fullmatch(first):
            raise _invalid(text, "names no valid bucket", "write s3://bucket/prefix, 3 to 63 lower-case characters")
        return GraphRoot("s3", f"s3://{first}/{prefix}" if prefix else f"s3://{first}", first, prefix)
    if not first:
        raise _invalid(text, "names no graph", "write memory://name")
    name = f"{first}/{prefix}" if prefix else first
    return GraphRoot("memory", f"{_MEMORY_SCHEME}://{name}", prefix=name)


def _local(text: str) -> GraphRoot:
    if "?" in text:
        # Lance takes what follows for a query and would write beside the directory.
        raise _invalid(text, "contains '?'", "choose a directory without it in its path")
    # POSIX lets a path begin with exactly two slashes and mean something else; nothing here does.
    path = "/" + os.path.abspath(text).lstrip("/")
    return GraphRoot("file", path, prefix=path.strip("/"))


def _checked_prefix(text: str, prefix: str) -> str:
    """A prefix is a key: nothing in it folds, so what would fold on a disk is a mistake here."""
    trimmed = prefix.rstrip("/")
    if trimmed and any(segment in ("", ".", "..") for segment in trimmed.split("/")):
        raise _invalid(text, "has an empty, '.' or '..' part", "write each part of the prefix once")
    return trimmed


def _invalid(text: str, problem: str, hint: str) -> BadRequest:
    shown = _CONTROL.sub("\N{REPLACEMENT CHARACTER}", _USER_INFO.sub(r"\1***@", text))
    return BadRequest(
        f"'{shown}' is not the URI of a graph: it {problem}", code="invalid_uri", details={"uri": shown}, hint=hint
    )


@dataclass(frozen=True)
class S3Settings:
    """What both libraries need to talk to an S3 store. Keys are left out of every repr."""

    endpoint: str | None = None
    region: str | None = None
    access_key_id: str | None = field(default=None, repr=False)
    secret_access_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    allow_http: bool = False
    path_style: bool = False

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> S3Settings:
        """Read the usual variables; an empty one counts as absent."""
        endpoint = env.get("AWS_ENDPOINT_URL_S3") or env.get("AWS_ENDPOINT_URL") or None
        region = env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION") or None
        access_key_id = env.get("AWS_ACCESS_KEY_ID") or None
        secret_access_key = env.get("AWS_SECRET_ACCESS_KEY") or None
        if (access_key_id is None) != (secret_access_key is None):
            raise BadRequest(
                "only one of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY is set",
                code="invalid_credentials",
                hint="set both or none",
            )
        if endpoint is not None:
            endpoint = _checked_endpoint(endpoint)
            # A store of one's own has no regions to ask about, but the signature needs one.
            region = region or "us-east-1"
        return cls(
            endpoint=endpoint,
            region=region,
            access_key_id=access_key_id,
            secret_access_key=secret_access_key,
            session_token=env.get("AWS_SESSION_TOKEN") or None,
            allow_http=_truthy(env, "AWS_ALLOW_HTTP") or (endpoint or "").startswith("http://"),
            path_style=_truthy(env, "AWS_S3_FORCE_PATH_STYLE"),
        )

    @property
    def secrets(self) -> tuple[str, ...]:
        """Every text that must not be printed."""
        return tuple(filter(None, (self.secret_access_key, self.session_token, self.access_key_id)))

    def config(self) -> dict[str, str]:
        """The store's own settings, under names that Lance and obstore share."""
        named = {
            "aws_region": self.region,
            "aws_access_key_id": self.access_key_id,
            "aws_secret_access_key": self.secret_access_key,
            "aws_session_token": self.session_token,
            "aws_endpoint": self.endpoint,
            # In both libraries AWS_ENDPOINT_URL_S3 of the process beats `aws_endpoint`, silently. This beats it.
            "aws_endpoint_url_s3": self.endpoint,
            "aws_virtual_hosted_style_request": "false" if self.path_style else None,
        }
        return {name: value for name, value in named.items() if value is not None}

    def storage_options(self) -> dict[str, str]:
        """The settings as pylance takes them."""
        return {**self.config(), **({"allow_http": "true"} if self.allow_http else {})}


def storage_options_from_env(env: Mapping[str, str]) -> dict[str, str]:
    """The `storage_options` with which pylance opens tables on the store that `env` describes [STO-02]."""
    return S3Settings.from_env(env).storage_options()


def _truthy(env: Mapping[str, str], name: str) -> bool:
    return env.get(name, "") in _TRUTHY


def _checked_endpoint(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise BadRequest(
            "the S3 endpoint is not a plain http or https URL",
            code="invalid_endpoint",
            hint="set AWS_ENDPOINT_URL_S3 to something like http://127.0.0.1:9000, without user or password",
        )
    return text.rstrip("/")
