"""What a load reads: files of records, found on the driver and cut into pieces, one for each task.

An input is a file, a directory or a pattern, on a disk or in an S3 bucket. JSON files hold records as `load` takes
them; Parquet files hold the rows of one type, at `nodes/<Type>/*.parquet` and `edges/<Type>/*.parquet`, or records,
in the columns `type`, `edge`, `from`, `to` and `data`. Records are numbered through all files in the order of their
paths, as if the files were one. Large JSON files are cut at the ends of lines, which needs the number of records
before each cut: lines are counted first, and a file whose lines are not records of their own is read in one piece.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet

from reference.errors import BadRequest, NotFound, OmniError, StorageError
from reference.storage.uris import S3Settings

Form = Literal["json", "rows", "records"]
JSON_SUFFIXES: Final = (".jsonl", ".json", ".ndjson")
PARQUET_SUFFIX: Final = ".parquet"
PIECE_BYTES: Final = 32 * 2**20
PIECE_ROWS: Final = 650_000
_PATTERN = re.compile(r"[*?\[]")
_TYPE_NAME = re.compile(rb'"(?:type|edge)"\s*:\s*"(\w+)"')
_RECORD_COLUMNS: Final = frozenset({"type", "edge", "from", "to", "data"})


@dataclass(frozen=True)
class Place:
    """Where files are, and how to get in: a disk, or S3 with the settings of the environment."""

    uri: str
    settings: S3Settings | None = field(default=None, repr=False)

    @classmethod
    def of(cls, uri: str, env: Mapping[str, str]) -> Place:
        if uri.startswith("s3://"):
            return cls(uri.rstrip("/"), S3Settings.from_env(env))
        return cls(os.path.abspath(uri.removeprefix("file://")))

    @property
    def path(self) -> str:
        """The place as its file system calls it."""
        return self.uri.removeprefix("s3://")

    def system(self) -> Any:
        if self.settings is None:
            return pa.fs.LocalFileSystem()
        settings = self.settings
        named = {
            "access_key": settings.access_key_id,
            "secret_key": settings.secret_access_key,
            "session_token": settings.session_token,
            "region": settings.region,
        }
        options: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
        if settings.endpoint is not None:
            scheme, _, host = settings.endpoint.partition("://")
            options |= {"endpoint_override": host, "scheme": scheme}
        return pa.fs.S3FileSystem(**options)

    def refused(self, error: Exception) -> OmniError:
        """What a file system raised, without the keys it was given."""
        text = str(error).partition("\n")[0]
        for secret in self.settings.secrets if self.settings is not None else ():
            text = text.replace(secret, "***")
        if isinstance(error, FileNotFoundError):
            return NotFound(f"{self.uri}: {text}", code="file_unusable")
        return StorageError(f"{self.uri} cannot be read: {text}", code="file_unusable")


@dataclass(frozen=True)
class InputFile:
    """One file. `kind` and `type_name` say whose rows a Parquet file holds."""

    path: str
    size: int
    form: Form
    kind: str = ""
    type_name: str = ""


@dataclass(frozen=True)
class Piece:
    """A part of a file: bytes of a JSON file, row groups of a Parquet file. `first` is its first record's number."""

    file: InputFile
    start: int
    end: int
    records: int = 0
    lines: int = 0
    first: int = 1
    first_line: int = 1
    is_stream: bool = False


def find_files(place: Place) -> list[InputFile]:
    """The files of an input, in the order in which their records are numbered."""
    system, path = place.system(), place.path
    try:
        if matched := _PATTERN.search(path):
            base = path[: matched.start()].rpartition("/")[0] or "/"
            found = _below(system, base)
            wanted = re.compile(_translated(path))
            return _known([each for each in found if wanted.fullmatch(each.path)], base)
        info = system.get_file_info(path)
        if info.type == pa.fs.FileType.File:
            return _known([info], os.path.dirname(path))
        if info.type == pa.fs.FileType.NotFound:
            raise NotFound(f"there is no file and no directory {place.uri}", code="file_unusable")
        return _known(_below(system, path), path)
    except (OSError, pa.ArrowException) as error:
        raise place.refused(error) from None


def _below(system: Any, directory: str) -> list[Any]:
    selector = pa.fs.FileSelector(directory, recursive=True, allow_not_found=True)
    return [info for info in system.get_file_info(selector) if info.type == pa.fs.FileType.File]


def _translated(pattern: str) -> str:
    """A pattern as a regular expression: a star stays within one directory, two of them do not."""
    parts = re.split(r"(\*\*/?|\*|\?|\[[^\]]*\])", pattern)
    meanings = {"**": ".*", "**/": "(?:.*/)?", "*": "[^/]*", "?": "[^/]"}
    return "".join(meanings.get(part, part if part.startswith("[") else re.escape(part)) for part in parts)


def _known(found: Iterable[Any], base: str) -> list[InputFile]:
    """The files that hold records. Beside folders of nodes and edges, nothing else in a directory is looked at."""
    files = []
    for info in found:
        inside = info.path[len(base) :].strip("/").split("/")
        if any(part.startswith(("_", ".")) for part in inside):
            continue
        parents = info.path.rsplit("/", 3)[-3:-1]
        if info.path.endswith(PARQUET_SUFFIX):
            is_typed = len(parents) == 2 and parents[0] in ("nodes", "edges")
            kind, name = (parents[0][:-1], parents[1]) if is_typed else ("", "")
            files.append(InputFile(info.path, info.size, "rows" if is_typed else "records", kind, name))
        elif info.path.endswith(JSON_SUFFIXES):
            files.append(InputFile(info.path, info.size, "json"))
    typed = [file for file in files if file.form == "rows"]
    # Nodes first: then what an edge points to has the smaller number, as a person would write it.
    ordered = sorted(typed or files, key=lambda file: (file.kind != "node", file.path))
    if not ordered:
        hint = "records are in .jsonl, .json, .ndjson or .parquet files"
        raise BadRequest("the input holds no file of records", code="no_input", hint=hint)
    return ordered


def cut(place: Place, files: Sequence[InputFile]) -> list[Piece]:
    """The pieces of all files: JSON files by bytes, not counted yet; Parquet files by rows, as their footers say."""
    parquet = [file for file in files if file.form != "json"]
    with ThreadPoolExecutor(8) as pool:
        footers = dict(zip(parquet, pool.map(lambda file: _footer(place, file), parquet), strict=True))
    pieces: list[Piece] = []
    for file in files:
        if file.form == "json":
            starts = range(0, max(file.size, 1), PIECE_BYTES)
            pieces += [Piece(file, start, min(start + PIECE_BYTES, file.size)) for start in starts]
        else:
            pieces += _row_groups(file, footers[file])
    return pieces


def _footer(place: Place, file: InputFile) -> list[int]:
    """The number of rows of each row group."""
    try:
        metadata = pa.parquet.read_metadata(file.path, filesystem=place.system())
    except (OSError, pa.ArrowException) as error:
        raise BadRequest(
            f"{file.path} is no Parquet file that can be read: {str(error).partition(chr(10))[0]}", code="file_unusable"
        ) from None
    return [metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)]


def _row_groups(file: InputFile, rows: Sequence[int]) -> list[Piece]:
    pieces, start, count = [], 0, 0
    for index, size in enumerate(rows):
        if count and count + size > PIECE_ROWS:
            pieces.append(Piece(file, start, index, records=count))
            start, count = index, 0
        count += size
    if count:
        pieces.append(Piece(file, start, len(rows), records=count))
    return pieces


def numbered(pieces: Sequence[Piece]) -> list[Piece]:
    """The pieces with the numbers of their first records and lines, once all of them are counted."""
    done: list[Piece] = []
    first, line, before = 1, 1, None
    for piece in pieces:
        line = line if before is not None and piece.file == before.file else 1
        done.append(replace(piece, first=first, first_line=line))
        first, line, before = first + piece.records, line + piece.lines, piece
    return done


def as_stream(pieces: Sequence[Piece], paths: frozenset[str]) -> list[Piece]:
    """The same pieces with some files in one piece each, to be read value by value and counted anew."""
    kept = [piece for piece in pieces if piece.file.path not in paths or piece.start == 0]
    return [
        replace(piece, end=piece.file.size, records=0, lines=0, is_stream=True) if piece.file.path in paths else piece
        for piece in kept
    ]


def read_json(place: Place, piece: Piece) -> tuple[bytes, int]:
    """The bytes of a piece of a JSON file, which are the lines that begin in it, and where in the file they begin."""
    try:
        with place.system().open_input_file(piece.file.path) as file:
            if piece.is_stream or (piece.start == 0 and piece.end == piece.file.size):
                return bytes(file.read()), 0
            # The line that is under way at the start belongs to the piece before; the one at the end belongs here.
            start = piece.start and _line_end(file, piece.start - 1, piece.file.size)
            end = piece.end if piece.end == piece.file.size else _line_end(file, piece.end - 1, piece.file.size)
            file.seek(start)
            return bytes(file.read(max(0, end - start))), start
    except (OSError, pa.ArrowException) as error:
        raise place.refused(error) from None


def _line_end(file: Any, position: int, size: int) -> int:
    """Where the line that holds a byte ends, its newline included."""
    file.seek(position)
    while position < size:
        block = file.read(65_536)
        found = block.find(b"\n")
        if found >= 0:
            return int(position + found + 1)
        position += len(block)
    return size


def named_types(data: bytes) -> frozenset[str]:
    """Every name that may be the type of a record in some JSON: more than there are, rather than fewer."""
    return frozenset(name.decode(errors="replace") for name in set(_TYPE_NAME.findall(data)))


def nonblank_lines(data: bytes) -> list[bytes]:
    return [line for line in data.split(b"\n") if line and line.strip(b" \t\r")]


def count_lines(data: bytes) -> tuple[int, int]:
    """How many lines of a piece are not blank, which is how many records it should have, and how many newlines."""
    newlines = int(np.count_nonzero(np.frombuffer(data, dtype=np.uint8) == ord("\n")))
    return len(nonblank_lines(data)), newlines


def read_rows(place: Place, piece: Piece) -> pa.Table:
    """The rows of a piece of a Parquet file."""
    try:
        with pa.parquet.ParquetFile(piece.file.path, filesystem=place.system()) as file:
            return file.read_row_groups(list(range(piece.start, piece.end)))
    except (OSError, pa.ArrowException) as error:
        raise place.refused(error) from None


def holds_records(columns: Iterable[str]) -> bool:
    """Whether the columns of a Parquet file are those of records."""
    names = set(columns)
    return names <= _RECORD_COLUMNS and bool(names & {"type", "edge"})
