"""A directory that a job fills: local, or a prefix in a bucket. Tasks write whole files into it.

A file appears whole or not at all, whichever attempt of a task wrote it, and a second attempt replaces the first with
the same bytes. Files are written through pyarrow, because Spark reaches no S3 store without jars. Secrets travel in the
pickled value; they are in no repr and in no error.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyarrow import fs

from reference.errors import BadRequest, StorageError
from reference.pipeline.inputs import Place
from reference.storage.uris import parse_root


@dataclass(frozen=True)
class Output:
    """A directory, and what is needed to get in."""

    place: Place

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
        return cls(Place.of(root.uri, os.environ if env is None else env))

    @property
    def uri(self) -> str:
        return self.place.uri

    def refuse_unless_empty(self) -> None:
        """A job fills a directory of its own: it neither mixes with what is there nor replaces it."""
        system, path = self.place.system(), self.place.path
        with self._in_words(self.uri):
            if system.get_file_info(path).type == fs.FileType.File:
                raise BadRequest(f"{self.uri} is a file, not a directory", code="not_a_directory")
            if system.get_file_info(fs.FileSelector(path, allow_not_found=True)):
                raise BadRequest(f"{self.uri} is not empty", code="output_not_empty", hint="name another directory")
            if isinstance(system, fs.LocalFileSystem):
                system.create_dir(path)

    @contextmanager
    def writing(self, name: str) -> Iterator[Any]:
        """A file to write, by its path below the directory. It is there when the block ends, and not before."""
        system, path = self.place.system(), f"{self.place.path}/{name}"
        is_local = isinstance(system, fs.LocalFileSystem)
        # An object of a bucket is put whole. On a disk it is written beside its name first.
        scratch = f"{path}.{uuid.uuid4().hex}" if is_local else path
        with self._in_words(f"{self.uri}/{name}"):
            if is_local:
                system.create_dir(path.rpartition("/")[0])
            with system.open_output_stream(scratch) as stream:
                yield stream
            if is_local:
                system.move(scratch, path)

    def write(self, name: str, content: bytes) -> None:
        """One whole file."""
        with self.writing(name) as stream:
            stream.write(content)

    @contextmanager
    def _in_words(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            text = f"{what}: {error.strerror or error}"
            for secret in self.place.settings.secrets if self.place.settings is not None else ():
                text = text.replace(secret, "***")
            raise StorageError(text, code="output_unusable") from None
