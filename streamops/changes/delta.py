"""Read Delta's change data feed as a change stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, TimestampType

from streamops.changelog.chains import UPSERTS
from streamops.changelog.change_types import (
    CHANGE_TYPE,
    CHANGE_TYPES,
    DELETE,
    INSERT,
    POSTIMAGE,
    PREIMAGE,
    RETRACTIONS,
)
from streamops.changelog.table import (
    CHANGED_AT,
    DELTA_SEQUENCE,
    REJECTED,
    SEQUENCE,
)
from streamops.changes import conditions
from streamops.kernel.parameters import parse_distinct_names, require_columns
from streamops.spark.columns import column, make_nullable
from streamops.spark.metadata import add_metadata
from streamops.spark.operator import Operator

Preimages = Literal["delete", "drop"]

REASONS = ("unknown_operation", "null_key", "no_sequence")

_VERSION, _COMMITTED = "_commit_version", "_commit_timestamp"
_FEED = {CHANGE_TYPE: StringType(), _VERSION: LongType(), _COMMITTED: TimestampType()}


def from_delta(
    key: str | Sequence[str],
    *,
    preimages: Preimages = "delete",
) -> Operator:
    """Read Delta's change data feed, with a sequence for each change.

    Within a commit, retractions are before additions: the sequence of a change is the version and, in
    it, position 0 for a preimage or a delete and 1 for the others. An update becomes a delete of the row
    before and an insert of the row after, as an update may change the key.

    Input        the columns of the table · _change_type: string · _commit_version: bigint ·
                 _commit_timestamp: timestamp
    Output       the columns of the table · _change_type · _sequence: struct<version: bigint,
                 position: int> · _changed_at: timestamp, of the commit · rejected: struct<reason,
                 change_type>, null in a change
    Output mode  any
    Watermark    none is needed; one on a column of the table is preserved
    State        none
    Order        rows may arrive in any order
    Batch        the same rows

    Parameters
    ----------
    key : str or sequence of str
        Columns that identify a row.
    preimages : "delete" or "drop"
        Whether the row before an update becomes a delete, or is dropped. "drop" makes a stream of
        upserts, for tables whose keys never change: otherwise the row of the old key is never deleted.
        Operators that retract rows refuse a stream without preimages.

    Returns
    -------
    Operator
        For use with ``DataFrame.transform``.

    Raises
    ------
    SpecError
        A parameter has the wrong type; `key` is a column of the feed (``NAME_TAKEN``).
    SchemaError, ColumnNotFound
        A column does not exist or has the wrong type, or a name is taken.

    Examples
    --------
    >>> from streamops import changes
    >>> changes.from_delta("id")
    changes.from_delta(key=('id',))

    Notes
    -----
    Reasons: "unknown_operation", "null_key", "no_sequence"; ``rejected.change_type`` is the type of the
    input row. Read the feed with ``option("readChangeFeed", "true")``.

    A retraction has the values from before the update, including timestamps: measure horizons and order
    versions by ``_changed_at``. ``normalize`` emits a delete and an insert of one version and key, in one
    micro-batch, as an update; and for ``apply`` no time passes between the two, so that with `track` an
    interval continues.

    See Also
    --------
    from_debezium : the same for Debezium's records.

    References
    ----------
    Delta's protocol, "Change Data Files".
    """
    spec = DeltaSpec(parse_distinct_names(key, parameter="key"), preimages)
    return Operator("changes.from_delta", spec)


@dataclass(frozen=True, slots=True)
class DeltaSpec:
    """Parameters of ``from_delta``."""

    key: tuple[str, ...]
    preimages: Preimages

    def __post_init__(self) -> None:
        """Validate the parameters."""
        if taken := [name for name in self.key if name in _FEED]:
            raise conditions.KEY_OF_THE_FEED.error(taken=taken[0], got=f"key={self.key!r}")

    @property
    def adds(self) -> tuple[str, ...]:
        """Columns that the operator adds."""
        return (SEQUENCE, CHANGED_AT, REJECTED)

    @property
    def marked(self) -> str:
        """The column whose metadata describes the stream."""
        return CHANGE_TYPE

    def check(self, frame: DataFrame) -> None:
        """Refuse a frame that is not a change data feed, or does not have the key."""
        types = {part.name: part.dataType for part in frame.schema.fields}
        wrong = [n for n, dtype in _FEED.items() if not isinstance(types.get(n), type(dtype))]
        if wrong:
            raise conditions.NOT_A_CHANGE_FEED.error(
                expected=", ".join((f"{n} {dtype.simpleString()}" for n, dtype in _FEED.items())),
                got=", ".join(
                    f"{n} {types[n].simpleString()}" if n in types else f"no {n}" for n in wrong
                ),
            )
        require_columns(types, {"key": self.key})

    def apply(self, frame: DataFrame) -> DataFrame:
        """The feed as a change stream."""
        change, version = column(CHANGE_TYPE), column(_VERSION)
        no_key = reduce(Column.__or__, (column(name).isNull() for name in self.key))
        reason = (
            F.when(~F.coalesce(change.isin(*CHANGE_TYPES), F.lit(False)), "unknown_operation")
            .when(no_key, "null_key")
            .when(version.isNull(), "no_sequence")
        )
        position = F.when(change.isin(*RETRACTIONS), F.lit(0)).otherwise(F.lit(1))
        parts = zip((version, position), DELTA_SEQUENCE, strict=True)
        sequence = F.struct(*(make_nullable(part).alias(to.name) for part, to in parts))
        rejected = F.struct(reason.alias("reason"), make_nullable(change).alias("change_type"))
        change_type = change
        if self.preimages == "drop":
            frame = frame.where(~F.coalesce(change == PREIMAGE, F.lit(False)))
        else:  # the postimage may have another key
            update = F.when(change == PREIMAGE, DELETE).when(change == POSTIMAGE, INSERT)
            change_type = update.otherwise(change)
        changes = frame.select(
            *(column(name) for name in frame.columns if name not in _FEED),
            F.when(reason.isNull(), change_type).alias(CHANGE_TYPE),
            F.when(reason.isNull(), sequence).alias(SEQUENCE),
            column(_COMMITTED).alias(CHANGED_AT),
            F.when(reason.isNotNull(), rejected).alias(REJECTED),
        )
        return mark_upserts(changes) if self.preimages == "drop" else changes

    def counts(self) -> Mapping[str, Column]:
        """Metrics: changes, and rejected rows by reason."""
        return count_changes(REASONS)


def count_changes(reasons: Sequence[str]) -> dict[str, Column]:
    """Metrics of a reader: changes, and rejected rows by reason."""
    reason = F.col(REJECTED)["reason"]
    return {
        "changes": F.count_if(F.col(CHANGE_TYPE).isNotNull()),
        "rejected": F.count_if(F.col(REJECTED).isNotNull()),
        "side_output": F.count_if(F.col(REJECTED).isNotNull()),
        **{name: F.count_if(reason == name) for name in reasons},
    }


def mark_upserts(changes: DataFrame) -> DataFrame:
    """Mark a change stream without preimages, which operators that retract rows refuse."""
    return add_metadata(changes, CHANGE_TYPE, {UPSERTS: True})
