"""What a record of Debezium's stands for: no change, one, or two."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from streamops.kernel.changes import DELETE, INSERT, POSTIMAGE, PREIMAGE

__all__ = ["DELETED", "MESSAGE", "Meaning", "as_nullable", "is_lacking"]

DELETED, MESSAGE = "d", "m"
"""The operations of a delete, and of a message that is about no row."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """How a record is told as changes.

    Reads the columns ``__op``, ``__before``, ``__after``, ``__key`` and what is known of them.
    """

    row: StructType
    key: tuple[str, ...]
    preimages: str
    tombstones: str

    def changes(self) -> Column:
        """The changes of a record, in their order."""
        op, before, after = F.col("__op"), F.col("__before"), F.col("__after")
        none = F.array().cast("array<string>")
        lacks = F.array_compact(
            F.array(
                *(
                    F.when(is_lacking("after", n) & ~self._is_had(n), F.lit(n))
                    for n in self.row.names
                )
            )
        )

        def change(word: str | None, image: Column, lacking: Column = none) -> Column:
            return F.struct(
                F.lit(word).cast("string").alias("word"),
                image.cast(as_nullable(self.row)).alias("row"),
                lacking.alias("unavailable"),
            )

        gone, came = change(DELETE, self.deleted()), change(INSERT, self.saved(), lacks)
        here, nothing = change(POSTIMAGE, self.saved(), lacks), change(None, F.lit(None))
        moved = reduce(Column.__or__, (before[n] != after[n] for n in self.key))
        known = reduce(Column.__and__, (before[n].isNotNull() for n in self.key))
        mark = change(None, F.col("__key"))
        tombstone = F.array(mark) if self.tombstones == "keep" else F.slice(F.array(mark), 1, 0)
        result = (
            F.when(F.col("__is_tombstone"), tombstone)
            .when(F.col("__reason").isNotNull(), F.array(nothing))
            .when(op == MESSAGE, F.slice(F.array(nothing), 1, 0))
            .when(op == DELETED, F.array(gone))
            .when((op == "u") & known & moved, F.array(gone, came))
        )
        if self.preimages == "publish":
            was = change(PREIMAGE, self._image("before"), F.col("__before_lacks"))
            result = result.when((op == "u") & known, F.array(was, here))
        return result.when(op == "u", F.array(here)).otherwise(F.array(came))

    def deleted(self) -> Column:
        """The row that a delete is about: as it was, or no more than its key."""
        before, key = self._image("before"), F.col("__key")
        return F.struct(
            *(
                (F.coalesce(before[n], key[n]) if n in self.key else before[n]).alias(n)
                for n in self.row.names
            )
        )

    def _image(self, image: str) -> Column:
        """The row, with null for what was not sent."""
        row = F.col(f"__{image}")
        return F.struct(
            *(F.when(~is_lacking(image, name), row[name]).alias(name) for name in self.row.names)
        )

    def saved(self) -> Column:
        """The row after a change; what was not sent, and the row before has, is that."""
        before, after = F.col("__before"), F.col("__after")
        return F.struct(
            *(
                F.when(self._is_had(n), before[n]).when(~is_lacking("after", n), after[n]).alias(n)
                for n in self.row.names
            )
        )

    def _is_had(self, name: str) -> Column:
        # Null there says no more than that the row before was not sent whole, as Postgres does
        # unless its replica identity is full: what is too large to be sent again is not null.
        had = (F.col("__op") == "u") & F.col("__before")[name].isNotNull()
        return had & is_lacking("after", name) & ~is_lacking("before", name)


def is_lacking(image: str, name: str) -> Column:
    """Whether the column is among those of the row that were not sent."""
    return F.array_contains(F.col(f"__{image}_lacks"), name)


def as_nullable(row: StructType) -> StructType:
    """The row, each column of which may be null."""
    return StructType([StructField(each.name, each.dataType, True) for each in row.fields])
