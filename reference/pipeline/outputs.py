"""A directory that a job fills: local, or a prefix in a bucket. Tasks write whole files into it.

A file appears whole or not at all, whichever attempt of a task wrote it, and a second attempt replaces the first with
the same bytes. Reading and writing go through pyarrow, because Spark reaches no S3 store without jars. Secrets travel
in the pickled value; they are in no repr.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from pyarrow import fs

from reference.errors import BadRequest, StorageError
from reference.storage.uris import parse_root, storage_options_from_env


@dataclass(frozen=True)
class Output:
    """A directory by its normal address, and what is needed to get in."""

    uri: str
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def at(cls, uri: str, env: Mapping[str, str] | None = None) -> Output:
        """The directory that a person names."""
        try:
            root = parse_root(uri)
        except BadRequest as error:
            why = error.message.partition(": ")[2]
            raise BadRequest(f"'{uri}' names no directory: {why}", code="invalid_uri", hint=error.hint) from None
        if root.scheme == "memory":
            raise BadRequest("tasks share no memory to write to", code="invalid_uri", hint="name a directory or s3://…")
        options = storage_options_from_env(os.environ if env is None else env) if root.scheme == "s3" else {}
        return cls(root.uri, options)

    def refuse_unless_empty(self) -> None:
        """A job fills a directory of its own: it neither mixes with what is there nor replaces it."""
        system, path = self._system()
        with _in_words(self.uri):
            found = system.get_file_info(path)
            if found.type == fs.FileType.File:
                raise BadRequest(f"{self.uri} is a file, not a directory", code="not_a_directory")
            selector = fs.FileSelector(path, allow_not_found=True)
            if system.get_file_info(selector):
                raise BadRequest(f"{self.uri} is not empty", code="output_not_empty", hint="name another directory")
            system.create_dir(path)

    @contextmanager
    def writing(self, name: str) -> Iterator[Any]:
        """A file to write, by its path below the directory. It is there when the block ends, and not before."""
        system, directory = self._system()
        path = f"{directory}/{name}"
        is_local = isinstance(system, fs.LocalFileSystem)
        # An object of a bucket is put whole. On a disk it is written beside its name first.
        scratch = f"{directory}/{name}.{uuid.uuid4().hex}" if is_local else path
        with _in_words(f"{self.uri}/{name}"):
            system.create_dir(path.rpartition("/")[0])
            with system.open_output_stream(scratch) as stream:
                yield stream
            if is_local:
                system.move(scratch, path)

    def write(self, name: str, content: bytes) -> None:
        """One whole file."""
        with self.writing(name) as stream:
            stream.write(content)

    def _system(self) -> tuple[fs.FileSystem, str]:
        if not self.uri.startswith("s3://"):
            return fs.LocalFileSystem(), self.uri
        return s3_system(self.storage_options), self.uri.removeprefix("s3://")


def s3_system(options: Mapping[str, str]) -> fs.FileSystem:
    """The bucket's files, with the settings that pylance takes."""
    endpoint = urlsplit(options.get("aws_endpoint", ""))
    return fs.S3FileSystem(
        access_key=options.get("aws_access_key_id"),
        secret_key=options.get("aws_secret_access_key"),
        session_token=options.get("aws_session_token"),
        region=options.get("aws_region"),
        scheme=endpoint.scheme or "https",
        endpoint_override=endpoint.netloc or None,
        allow_bucket_creation=False,
    )


@contextmanager
def _in_words(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(f"{what}: {error.strerror or error}", code="output_unusable") from error
