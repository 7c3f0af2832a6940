"""What a load reads: files of records, found on the driver and cut into pieces, one for each task.

An input is a file, a directory or a pattern, on a disk or in an S3 bucket. JSON files hold records as `load` takes
them; Parquet files hold the rows of one type, anywhere below `nodes/<Type>/` and `edges/<Type>/`, or records, in the
columns `type`, `edge`, `from`, `to` and `data`. A file of another kind is refused: what is not read must not look as if
it had been. Only names that begin with `_` or `.` are passed over, and the two files that `generate` writes beside its
tables. Records are numbered through all files in the order of their paths, as if the files were one. Large JSON files
are cut at the ends of lines, which needs the number of records before each cut: lines are counted first, and a file
whose lines are not records of their own is read in one piece. Large row groups of Parquet files are cut as well.
"""

from __future__ import annotations

import os.path
import re
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

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
BATCH_ROWS: Final = 65_536
# What `generate` leaves beside the tables that it makes.
SCHEMA_FILE: Final = "schema.pg"
TRUTH_FILE: Final = "truth.json"
_PATTERN = re.compile(r"[*?\[]")
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

    def refused(self, error: Exception, done: str = "read") -> OmniError:
        """What a file system raised, without the keys it was given."""
        text = str(error).partition("\n")[0]
        for secret in self.settings.secrets if self.settings is not None else ():
            text = text.replace(secret, "***")
        if isinstance(error, FileNotFoundError):
            return NotFound(f"{self.uri}: {text}", code="file_unusable")
        return StorageError(f"{self.uri} cannot be {done}: {text}", code="file_unusable")


@dataclass(frozen=True)
class InputFile:
    """One file. `kind` and `type_name` say whose rows a Parquet file holds, `has_ids` whether it may fix their ids, and
    `partitions` which columns the names of its directories speak of."""

    path: str
    size: int
    form: Form
    kind: str = ""
    type_name: str = ""
    has_ids: bool = True
    partitions: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Piece:
    """A part of a file: bytes of a JSON file, row groups of a Parquet file, or with `skip` the rows of one row group
    behind so many others. `first` is its first record's number."""

    file: InputFile
    start: int
    end: int
    records: int = 0
    lines: int = 0
    first: int = 1
    first_line: int = 1
    is_stream: bool = False
    skip: int | None = None


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
            return _known([info], path)  # Whoever names one file means it, whatever its name begins with.
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
    """The files that hold records, all of them."""
    shown = [
        info
        for info in found
        if not any(part.startswith(("_", ".")) for part in info.path[len(base) :].strip("/").split("/"))
    ]
    typed = [file for info in shown if (file := _typed_file(info, base)) is not None]
    files = [_untyped_file(info) for info in shown if not _is_passed_over(info, base, beside_types=bool(typed))]
    # Nodes first: then what an edge points to has the smaller number, as a person would write it.
    ordered = sorted([*typed, *files], key=lambda file: (file.kind != "node", file.kind == "edge", file.path))
    if not ordered:
        hint = "records are in .jsonl, .json, .ndjson or .parquet files"
        raise BadRequest("the input holds no file of records", code="no_input", hint=hint)
    return ordered


def _typed_file(info: Any, base: str) -> InputFile | None:
    """A Parquet file below the folder of a type, which the input may contain, be, or lie in."""
    if not info.path.endswith(PARQUET_SUFFIX):
        return None
    outside = base.strip("/").split("/")
    folders = info.path.strip("/").split("/")[max(0, len(outside) - 3) : -1]
    marks = [index for index, name in enumerate(folders[:-1]) if name in ("nodes", "edges")]
    if not marks:
        return None
    kind, name, *deeper = folders[marks[-1] :]
    partitions = frozenset(each.partition("=")[0] for each in deeper if "=" in each)
    return InputFile(info.path, info.size, "rows", kind[:-1], name, partitions=partitions)


def _is_passed_over(info: Any, base: str, *, beside_types: bool) -> bool:
    name = info.path.rpartition("/")[2]
    is_generated = name == SCHEMA_FILE or (name == TRUTH_FILE and beside_types)
    return _typed_file(info, base) is not None or (is_generated and info.path != base)


def _untyped_file(info: Any) -> InputFile:
    if info.path.endswith(PARQUET_SUFFIX):
        return InputFile(info.path, info.size, "records")
    if info.path.endswith(JSON_SUFFIXES):
        return InputFile(info.path, info.size, "json")
    raise BadRequest(
        f"{info.path} is no file of records that can be read",
        code="file_unusable",
        details={"file": info.path},
        hint="records are in .jsonl, .json, .ndjson or .parquet files, not compressed; names with _ are passed over",
    )


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
            columns, rows = footers[file]
            pieces += _row_groups(replace(file, has_ids=file.form == "records" or "id" in columns), rows)
    return pieces


def _footer(place: Place, file: InputFile) -> tuple[list[str], list[int]]:
    """The names of the columns, and the number of rows of each row group."""
    try:
        metadata = pa.parquet.read_metadata(file.path, filesystem=place.system())
        columns = list(metadata.schema.to_arrow_schema().names)
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(place, file, error) from None
    twice = sorted({name for name in columns if columns.count(name) > 1})
    if twice:
        raise BadRequest(
            f"{file.path} has the column '{twice[0]}' more than once",
            code="file_unusable",
            details={"file": file.path, "column": twice[0]},
        )
    return columns, [metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)]


def _unreadable(place: Place, file: InputFile, error: Exception) -> OmniError:
    """A store that fails may be asked again; a file that is damaged stays so."""
    from_store = isinstance(error, OSError) and (error.errno is not None or "AWS Error" in str(error))
    if from_store:
        return place.refused(error)
    cause = str(error).partition("\n")[0]
    return BadRequest(
        f"{file.path} is no Parquet file that can be read: {cause}",
        code="file_unusable",
        details={"file": file.path},
    )


def _row_groups(file: InputFile, rows: Sequence[int]) -> list[Piece]:
    """Row groups together as far as they are small; one that is large in slices, each of which reads what is before
    it and drops it."""
    pieces, start, count = [], 0, 0
    for index, size in enumerate(rows):
        if count and count + size > PIECE_ROWS:
            pieces.append(Piece(file, start, index, records=count))
            start, count = index, 0
        if size > 2 * PIECE_ROWS:
            for skip in range(0, size, PIECE_ROWS):
                pieces.append(Piece(file, index, index + 1, records=min(PIECE_ROWS, size - skip), skip=skip))
            start, count = index + 1, 0
        else:
            start = index if not count else start
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
            if piece.start == 0 and file.read(len(BOM_UTF8)) == BOM_UTF8:
                hint = "save it as UTF-8 without one"
                raise BadRequest(f"{piece.file.path} begins with a byte order mark", code="byte_order_mark", hint=hint)
            file.seek(0)
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


def read_rows(place: Place, piece: Piece) -> pa.Table:
    """The rows of a piece of a Parquet file."""
    try:
        with pa.parquet.ParquetFile(piece.file.path, filesystem=place.system()) as file:
            if piece.skip is None:
                return file.read_row_groups(list(range(piece.start, piece.end)))
            return pa.Table.from_batches(_sliced(file, piece.start, piece.skip, piece.records), file.schema_arrow)
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(place, piece.file, error) from None


def _sliced(file: Any, group: int, skip: int, wanted: int) -> Iterator[pa.RecordBatch]:
    for batch in file.iter_batches(batch_size=BATCH_ROWS, row_groups=[group]):
        if skip < batch.num_rows:
            part = batch.slice(skip, wanted)
            wanted -= part.num_rows
            yield part
        skip = max(0, skip - batch.num_rows)
        if not wanted:
            return


def holds_records(columns: Iterable[str]) -> bool:
    """Whether the columns of a Parquet file are those of records."""
    names = set(columns)
    return names <= _RECORD_COLUMNS and bool(names & {"type", "edge"})
