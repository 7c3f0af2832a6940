"""The three schema files on the store: read as one contract, changed through staging copies [SCH-10…SCH-18].

A schema apply writes all three staging files, publishes, and then renames them one by one, the state file last both
times. So a state file in staging means that staging is whole, and no state file in staging means that the publish
never came: every cut in between can be told apart, and ends in the old schema or the new one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reference.errors import Conflict, Internal, NotFound, OmniError
from reference.format.names import SCHEMA_FILES, SCHEMA_IR_FILE, SCHEMA_SOURCE_FILE, SCHEMA_STATE_FILE, STAGING_SUFFIX
from reference.format.schema_files import check_contract, parse_state, schema_file_texts
from reference.schema.compiler import compile_schema
from reference.schema.ir import catalog_from_ir, ir_hash, parse_ir, schema_ir
from reference.schema.types import Catalog
from reference.storage.objects import TextObjects

# Each schema file's text and token; None for one that is missing.
InPlace = Mapping[str, tuple[str, str] | None]


@dataclass(frozen=True)
class Accepted:
    """The schema that the graph has accepted."""

    source: str
    catalog: Catalog
    token: str


class SchemaFiles:
    """The schema contract of one graph."""

    def __init__(self, objects: TextObjects) -> None:
        self._objects = objects
        self._accepted: Accepted | None = None

    # -- reading -----------------------------------------------------------------------------------------------

    def current(self) -> Accepted:
        """The accepted schema. One probe while nothing has changed; a source edited by hand is refused [SNP-10]."""
        if self._accepted is not None and self._objects.probe(SCHEMA_SOURCE_FILE) == self._accepted.token:
            return self._accepted
        return self.reload()

    def reload(self) -> Accepted:
        """Read all three files and check them against each other."""
        source, token = self._read_source()
        try:
            catalog = self._catalog_of(source)
        except OmniError:
            # A schema apply may be putting its files in place right now: the rest of the new schema is in staging, or
            # the last file came while we were reading.
            if self.staging_is_whole() and (self._staged_texts() or {}).get(SCHEMA_SOURCE_FILE) == source:
                catalog = compile_schema(source)
            else:
                source, token = self._read_source()
                catalog = self._catalog_of(source)
        self._accepted = Accepted(source, catalog, token)
        return self._accepted

    def _catalog_of(self, source: str) -> Catalog:
        ir, state = self._read(SCHEMA_IR_FILE), self._read(SCHEMA_STATE_FILE)
        if ir is not None and state is not None:
            return check_contract(source, ir, state)
        if ir is not None or state is not None:
            raise Conflict("only one of the compiled schema files is there", code="schema_contract_incomplete")
        return compile_schema(source)

    def read_staged(self) -> None:
        """See the staged schema as the accepted one, in memory only, until the source file changes [B20]."""
        texts = self._staged_texts()
        if texts is not None:
            source = texts[SCHEMA_SOURCE_FILE]
            self._accepted = Accepted(source, compile_schema(source), self._read_source()[1])

    def compiled_files_are_missing(self) -> bool:
        """Whether neither compiled file is there, as in a graph that lost them or never had them [SCH-13]."""
        return self._read(SCHEMA_IR_FILE) is None and self._read(SCHEMA_STATE_FILE) is None

    def write_compiled_files(self) -> None:
        """Compile the source again and write what it compiles to."""
        source, _ = self._read_source()
        texts = schema_file_texts(source, compile_schema(source))
        for name in (SCHEMA_IR_FILE, SCHEMA_STATE_FILE):
            self._objects.write(name, texts[name])

    def _read_source(self) -> tuple[str, str]:
        try:
            return self._objects.read_versioned(SCHEMA_SOURCE_FILE)
        except NotFound as error:
            raise Internal(
                f"the graph is damaged: {SCHEMA_SOURCE_FILE} is missing",
                code="schema_source_missing",
                hint="restore it from a copy of the graph",
            ) from error

    def _read(self, name: str) -> str | None:
        try:
            return self._objects.read(name)
        except NotFound:
            return None

    # -- claiming, at init -------------------------------------------------------------------------------------

    def claim(self, source: str) -> bool:
        """Create the source file; whoever does owns the root [SCH-16]."""
        return self._objects.write_if_absent(SCHEMA_SOURCE_FILE, source)

    def write_all(self, source: str, catalog: Catalog) -> None:
        """Write the three files in place."""
        for name, text in schema_file_texts(source, catalog).items():
            self._objects.write(name, text)

    def any_exists(self) -> bool:
        return any(self._objects.probe(name) is not None for name in SCHEMA_FILES)

    def remove_all(self) -> None:
        """Give a claim back: the source file last, because it is the claim."""
        for name in reversed(SCHEMA_FILES):
            self._objects.delete(name)

    # -- staging -----------------------------------------------------------------------------------------------

    def write_staging(self, source: str, catalog: Catalog) -> None:
        """Write the staging files, the state file last."""
        for name, text in schema_file_texts(source, catalog).items():
            self._objects.write(name + STAGING_SUFFIX, text)

    def staging_exists(self) -> bool:
        return any(self._objects.probe(name + STAGING_SUFFIX) is not None for name in SCHEMA_FILES)

    def state_is_staged(self) -> bool:
        """Whether staging was written to its end, by one probe."""
        return self._objects.probe(SCHEMA_STATE_FILE + STAGING_SUFFIX) is not None

    def staging_is_whole(self) -> bool:
        """Whether the new schema can be put together from staging and from what was renamed already."""
        try:
            return self._staged_texts() is not None
        except OmniError:
            return False

    def staged_catalog(self) -> Catalog | None:
        """The schema that staging holds, if it holds one."""
        texts = self._staged_texts()
        return None if texts is None else compile_schema(texts[SCHEMA_SOURCE_FILE])

    def _staged_texts(self) -> dict[str, str] | None:
        """All three texts of the staged schema. Each is in staging, or in place if its rename was done [STO-05]."""
        state_text = self._read(SCHEMA_STATE_FILE + STAGING_SUFFIX)
        if state_text is None:
            return None
        wanted = parse_state(state_text).schema_ir_hash
        texts = {SCHEMA_STATE_FILE: state_text}
        for name, hash_of in ((SCHEMA_SOURCE_FILE, _hash_of_source), (SCHEMA_IR_FILE, _hash_of_ir)):
            for text in (self._read(name + STAGING_SUFFIX), self._read(name)):
                if name not in texts and text is not None and hash_of(text) == wanted:
                    texts[name] = text
        if len(texts) < len(SCHEMA_FILES):
            raise Internal(
                "a staged schema state has no source and compiled form that match it",
                code="schema_staging_broken",
                hint="review the .staging files at the root of the graph",
            )
        return texts

    def in_place(self) -> InPlace:
        """The three files as they are now, each with its token."""
        return {name: self._read_versioned(name) for name in SCHEMA_FILES}

    def promote_staging(
        self, texts: Mapping[str, str] | None = None, found: InPlace | None = None, *, discard: bool = True
    ) -> None:
        """Make the staged schema the accepted one. Does nothing where that is done; goes on where it was cut.

        A live writer knows its `texts`, and what it `found` in place when it took the lock; whoever finishes for a dead
        one reads both now.

        Each file replaces the one that was there at the start, or none: a process that was suspended in between must
        not put its schema over one that was accepted meanwhile.
        """
        found = self.in_place() if found is None else found
        texts = self._texts_to_promote() if texts is None else texts
        if texts is not None:
            for name in SCHEMA_FILES:
                if not self._replace(name, texts[name], found[name]):
                    return
        if discard:
            self.discard_staging()

    def _texts_to_promote(self) -> dict[str, str] | None:
        try:
            return self._staged_texts()
        except Internal:
            if self._read(SCHEMA_STATE_FILE + STAGING_SUFFIX) is None:
                return None  # Another process was faster, and has cleared up while we read.
            raise

    def _read_versioned(self, name: str) -> tuple[str, str] | None:
        try:
            return self._objects.read_versioned(name)
        except NotFound:
            return None

    def _replace(self, name: str, text: str, found: tuple[str, str] | None) -> bool:
        """Put a file in place of the one that was found; say whether it stands there now."""
        if found is None:
            return self._objects.write_if_absent(name, text) or self._read(name) == text
        if found[0] == text or self._objects.write_if_match(name, text, found[1]) is not None:
            return True
        return self._read(name) == text

    def discard_staging(self) -> None:
        """Remove the staging files, the state file first: without it the others mean nothing."""
        for name in reversed(SCHEMA_FILES):
            self._objects.delete(name + STAGING_SUFFIX)

    def resolve_staging_without_sidecar(self, published_keys: set[str]) -> None:
        """Staging that no sidecar explains: keep whichever schema names the tables that the manifest has [SCH-11]."""
        if not self.staging_exists():
            return
        staged = self.staged_catalog()
        if staged is None:
            self.discard_staging()  # The publish comes after a whole staged schema, so it never came.
            return
        live_text = self._read(SCHEMA_IR_FILE)
        live = catalog_from_ir(parse_ir(live_text)) if live_text is not None else None
        if live is not None and ir_hash(schema_ir(live)) == ir_hash(schema_ir(staged)):
            self.promote_staging()  # Same schema: what is left of the rename is done, or there is nothing to do.
        elif live is not None and set(live.table_keys()) == set(staged.table_keys()):
            raise Conflict(
                "a staged schema and the accepted one name the same tables, and no sidecar says which is published",
                code="schema_staging_ambiguous",
                hint="compare _schema.pg with _schema.pg.staging and remove the .staging files or put them in place",
            )
        elif live is not None and set(live.table_keys()) == published_keys:
            self.discard_staging()
        elif set(staged.table_keys()) == published_keys:
            self.promote_staging()
        else:
            raise Conflict(
                "neither the staged schema nor the accepted one names the tables of the manifest",
                code="schema_staging_ambiguous",
                hint="review the .staging files at the root of the graph",
            )


def _hash_of_source(text: str) -> str | None:
    try:
        return ir_hash(schema_ir(compile_schema(text)))
    except OmniError:
        return None


def _hash_of_ir(text: str) -> str | None:
    try:
        return ir_hash(parse_ir(text))
    except OmniError:
        return None
