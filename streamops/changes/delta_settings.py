"""What a user says about Delta's change data feed, validated once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, TimestampType

from streamops.changelog.change_types import (
    CHANGE_TYPE,
    CHANGE_TYPES,
    DELETE,
    INSERT,
    POSTIMAGE,
    PREIMAGE,
    RETRACTIONS,
)
from streamops.changelog.table import CHANGED_AT, DELTA_SEQUENCE, REJECTED, SEQUENCE
from streamops.kernel.errors import ColumnNotFound, SchemaError, SpecError
from streamops.spark.columns import column, make_nullable
from streamops.spark.parameters import parse_distinct_names
from streamops.spark.results import UPSERTS
from streamops.spark.rowwise import noted
from streamops.spark.transform import require_choice

__all__ = ["REASONS", "DeltaSettings", "Preimages"]

Preimages = Literal["delete", "drop"]

REASONS = ("unknown_operation", "null_key", "no_sequence")

_VERSION, _COMMITTED = "_commit_version", "_commit_timestamp"
_FEED = {CHANGE_TYPE: StringType(), _VERSION: LongType(), _COMMITTED: TimestampType()}


@dataclass(frozen=True, slots=True)
class DeltaSettings:
    """Settings of the reading of a change data feed."""

    where: str = field(repr=False)
    key: tuple[str, ...]
    preimages: Preimages

    @staticmethod
    def of(where: str, *, key: str | Sequence[str], preimages: Preimages) -> DeltaSettings:
        """Settings as the user wrote them, normalised, or an error."""
        require_choice(preimages, Preimages, parameter="preimages", where=where)
        keys = parse_distinct_names(key, parameter="key", where=where)
        if told := [name for name in keys if name in _FEED]:
            raise SpecError(
                "KEY_OF_THE_FEED",
                f"{told[0]!r} says something of a change, and is no column of its row",
                where=where,
                got=f"key={key!r}",
                expected="columns that identify a row of the table",
                fix='from_delta("id")',
            )
        return DeltaSettings(where, keys, preimages)

    @property
    def adds(self) -> tuple[str, ...]:
        """Columns that it adds."""
        return (SEQUENCE, CHANGED_AT, REJECTED)

    @property
    def marked(self) -> str:
        """The column that tells the next operator about this one."""
        return CHANGE_TYPE

    def check(self, frame: DataFrame) -> None:
        """Refuse a frame that is no change data feed, or has no such key."""
        kinds = {each.name: each.dataType for each in frame.schema.fields}
        wrong = [n for n, kind in _FEED.items() if not isinstance(kinds.get(n), type(kind))]
        if wrong:
            raise SchemaError(
                "NOT_A_CHANGE_FEED",
                "the frame does not have the columns of Delta's change data feed",
                where=self.where,
                got=", ".join(
                    f"{n} {kinds[n].simpleString()}" if n in kinds else f"no {n}" for n in wrong
                ),
                expected=", ".join(f"{n} {kind.simpleString()}" for n, kind in _FEED.items()),
                fix='spark.readStream.format("delta").option("readChangeFeed", "true")',
            )
        for name in self.key:
            if name not in kinds:
                raise ColumnNotFound(name, list(kinds), where=self.where, role="key")

    def apply(self, frame: DataFrame) -> DataFrame:
        """The feed as a stream of changes."""
        word, version = column(CHANGE_TYPE), column(_VERSION)
        no_key = reduce(Column.__or__, (column(name).isNull() for name in self.key))
        reason = (
            F.when(~F.coalesce(word.isin(*CHANGE_TYPES), F.lit(False)), "unknown_operation")
            .when(no_key, "null_key")
            .when(version.isNull(), "no_sequence")
        )
        is_good = reason.isNull()
        place = F.when(word.isin(*RETRACTIONS), F.lit(0)).otherwise(F.lit(1))
        parts = (make_nullable(version), make_nullable(place))
        sequence = F.struct(
            *(part.alias(each.name) for part, each in zip(parts, DELTA_SEQUENCE, strict=True))
        )
        told = F.struct(reason.alias("reason"), make_nullable(word).alias("change_type"))
        said = word
        if self.preimages == "drop":
            frame = frame.where(~F.coalesce(word == PREIMAGE, F.lit(False)))
        else:
            # The postimage may be of another key, so each image stands for itself.
            said = F.when(word == PREIMAGE, DELETE).when(word == POSTIMAGE, INSERT).otherwise(word)
        names = [each for each in frame.columns if each not in _FEED]
        changes = frame.select(
            *(column(name) for name in names),
            F.when(is_good, said).alias(CHANGE_TYPE),
            F.when(is_good, sequence).alias(SEQUENCE),
            column(_COMMITTED).alias(CHANGED_AT),
            F.when(~is_good, told).alias(REJECTED),
        )
        return noted(changes, CHANGE_TYPE, {UPSERTS: True}) if self.preimages == "drop" else changes

    def counts(self) -> Mapping[str, Column]:
        """Changes, and what is none, by reason."""
        reason = F.col(REJECTED)["reason"]
        return {
            "changes": F.count_if(F.col(CHANGE_TYPE).isNotNull()),
            "rejected": F.count_if(F.col(REJECTED).isNotNull()),
            **{word: F.count_if(reason == word) for word in REASONS},
        }
