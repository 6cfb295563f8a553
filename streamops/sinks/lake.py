"""What the sinks of Delta Lake and Iceberg share: their tables are data files, which a commit names."""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from streamops.changelog.change_types import CHANGE_TYPE
from streamops.kernel.errors import Condition
from streamops.kernel.ordering import is_comparable
from streamops.sinks import conditions
from streamops.sinks.copy_on_write import Files, Job, Replaced, replace_files
from streamops.sinks.core import stored_types
from streamops.sinks.core.ledger import Decision, Delivery, Entry
from streamops.sinks.core.net import content_columns, form_of
from streamops.sinks.protocol import Content, Reduced
from streamops.sinks.sink import TableSink, columns_differ, type_differs
from streamops.sinks.tasks import Part, Receipts


@dataclass(frozen=True, kw_only=True, repr=False)
class LakeTable(TableSink):
    """A sink whose target is a table of data files, which others may set back."""

    rows_removed: ClassVar[Condition[Any]]

    def _refuse_removed(self, found: Any, delivery: Delivery) -> None:
        """Refuse to continue on rows of somebody else, unless the user wants that."""
        entry = found.entry
        is_continued = delivery.batch if entry is None else entry.query == delivery.query
        if not (found.removed_by and is_continued) or self.new_checkpoint == "continue":
            return
        raise self.rows_removed.error(
            got=f"{found.removed_by}, and now micro-batch {delivery.batch} of query {delivery.query}"
        )


@dataclass(frozen=True, kw_only=True, repr=False)
class LakeSink(LakeTable):
    """A sink that writes the data files of its table itself."""

    type_unknown: ClassVar[Condition[Any]]

    @property
    def _is_distributed(self) -> bool:
        return True

    def _reduce(self, content: Content) -> Any:
        return content if isinstance(content, Receipts) else super()._reduce(content)

    def _together(self, schema: pa.Schema) -> tuple[str, ...] | None:
        if form_of(schema.names, self.key) != "multiset":
            return self.key or ()
        names = content_columns([n for n in schema.names if n != CHANGE_TYPE], ())
        return tuple(name for name in names if is_comparable(schema.field(name).type)) or None

    def _keeps_values(self, table: Sequence[str], rows: Sequence[str]) -> bool:
        """Whether rows of the table keep values in columns that the rows with their keys do not have."""
        return self.key is not None and not set(table) <= set(rows)

    def _job(self, names: Sequence[str], files: Files, staging: str) -> Job:
        return Job.of(names, files, staging, key=self.key, sequence=self._sequence_of(names))

    def _replaced(
        self,
        receipts: Receipts,
        decision: Decision,
        state: str,
        job: Callable[[str], Job],
        find: Callable[[pa.Table], Sequence[Part]],
    ) -> Replaced:
        """Find the files that a commit adds to a table in this state, see `state_of`, and that it removes.

        `job` gets the name of the folder that was announced. See `replace_files`.
        """
        if not receipts.parts:
            return Replaced([], [])
        first = receipts.parts[0]
        made = job(first["folder"])
        # Tasks fill columns with null that others have added just before they began.
        is_filled = self._keeps_values(made.files.schema.names, values_of(receipts).names)
        if first["state"] != state or is_filled:
            got = "columns, properties or the entry of the ledger have changed while tasks wrote"
            raise conditions.COMMIT_CONFLICTS.error(got=got)
        is_new = decision.action == "replace"
        return replace_files(made, receipts, _find_none if is_new else find)

    def _stored(self, schema: pa.Schema) -> pa.Schema:
        """The schema in types that the table can have."""
        types = []
        for part in schema:
            dtype = stored_types.stored_type(part.type)
            if dtype is None:
                raise self.type_unknown.error(column=part.name, got=part.type)
            if part.name in (self.key or ()) and not stored_types.can_be_key(dtype):
                raise conditions.KEY_NOT_COMPARABLE.error(column=part.name, got=part.type)
            types.append((part.name, dtype))
        return pa.schema(types)

    def _fit(self, commit: Any, wanted: pa.Schema) -> pa.Schema:
        """Check that the table takes the rows, and return the schema in which it takes them."""
        self._refuse_features(commit.table)
        found = commit.schema
        new = [part for part in wanted if part.name not in found.names]
        required = [name for name in commit.required if name not in wanted.names]
        folded = {name.casefold() for name in found.names}
        if (
            required
            or (new and self.columns == "exact")
            or folded & {p.name.casefold() for p in new}
        ):
            note = ", whose names must differ from the others in more than upper and lower case"
            names = [part.name for part in new]
            raise columns_differ(names, required, found.names, note=note)
        for part in wanted:
            if part not in new and not stored_types.accepts(found.field(part.name).type, part.type):
                dtype = found.field(part.name).type
                raise type_differs(part.name, part.type, dtype, part.type)
        commit.add_columns(new)
        return pa.schema([commit.schema.field(name).with_nullable(True) for name in wanted.names])

    @abstractmethod
    def _refuse_features(self, table: Any) -> None:
        """Refuse a table that would be written in a way that its readers do not understand."""


def _find_none(_: pa.Table) -> list[Part]:
    return []


def state_of(facts: Sequence[Any], entry: Entry | None) -> str:
    """What files of tasks depend on, as a short text: facts about the table, and the entry of the ledger.

    A run that commits another entry removes what was announced before, see `leftovers.clean_up`.
    """
    return hashlib.sha256(json.dumps([*facts, repr(entry)]).encode()).hexdigest()[:16]


def values_of(content: Reduced | Receipts) -> pa.Schema:
    """The columns of the rows that the table gets."""
    if isinstance(content, Reduced):
        return content.net.added.schema
    return without_change_type(content.schema)


def without_change_type(schema: pa.Schema) -> pa.Schema:
    """The columns without the type of the change."""
    return pa.schema([part for part in schema if part.name != CHANGE_TYPE])
