"""What a record of Debezium's stands for: no change, one, or two."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from streamops.changelog.change_types import DELETE, INSERT, POSTIMAGE, PREIMAGE, TRUNCATE
from streamops.spark.columns import map_type

__all__ = ["DELETED", "MESSAGE", "TRUNCATED", "Meaning", "held", "hold", "is_lacking"]

_HELD = "__streamops_"

DELETED, MESSAGE, TRUNCATED = "d", "m", "t"
"""The operations of a delete, of a logical decoding message, and of a truncate."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """How a record is told as changes.

    Reads what is ``held`` of it: op, before, after, key, and what is known of them.
    """

    row: StructType
    key: tuple[str, ...]
    preimages: str
    tombstones: str

    def changes(self) -> Column:
        """The changes of a record, in their order."""
        op, before, after = held("op"), held("before"), held("after")
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
                image.cast(map_type(self.row, relax=True)).alias("row"),
                lacking.alias("unavailable"),
            )

        gone, came = change(DELETE, self.deleted()), change(INSERT, self.saved(), lacks)
        here, nothing = [change(POSTIMAGE, self.saved(), lacks)], change(None, F.lit(None))
        if self.preimages == "publish":
            here.insert(0, change(PREIMAGE, self._image("before")))
        moved = reduce(Column.__or__, (before[n] != after[n] for n in self.key))
        mark = change(None, held("key"))
        tombstone = F.array(mark) if self.tombstones == "keep" else F.slice(F.array(mark), 1, 0)
        return (
            F.when(held("is_tombstone"), tombstone)
            .when(held("reason").isNotNull(), F.array(nothing))
            .when(op == MESSAGE, F.slice(F.array(nothing), 1, 0))
            .when(op == TRUNCATED, F.array(change(TRUNCATE, F.lit(None))))
            .when(op == DELETED, F.array(gone))
            .when((op == "u") & self._is_known_before() & moved, F.array(gone, came))
            .when(op == "u", F.array(*here))
            .otherwise(F.array(came))
        )

    def misses_before(self) -> Column:
        """Whether a row that is to be taken back is not told whole."""
        if self.preimages == "drop":
            return F.lit(False)
        op, before = held("op"), held("before")
        lacks = F.cardinality(held("before_lacks")) > 0
        for name in self.row.names:  # what is too large to be sent again was there before
            lacks |= (op == "u") & is_lacking("after", name) & ~self._is_had(name)
        others = [before[name].isNull() for name in self.row.names if name not in self.key]
        if others:
            # Postgres tells of the row before no more than the key, unless it is set to tell all;
            # the other columns, also those that are not read, are null then.
            told = F.map_filter(
                F.from_json(held("env")["before"], "map<string,string>"),
                lambda name, value: ~name.isin(*self.key) & value.isNotNull(),
            )
            is_postgres = held("env")["source"]["connector"].eqNullSafe("postgresql")
            is_bare = reduce(Column.__and__, others, is_postgres) & (F.cardinality(told) == 0)
            lacks |= is_bare
        return op.isin("u", DELETED) & (~self._is_known_before() | lacks)

    def _is_known_before(self) -> Column:
        before = held("before")
        return reduce(Column.__and__, (before[name].isNotNull() for name in self.key))

    def deleted(self) -> Column:
        """The row that a delete is about: as it was, or no more than its key."""
        before, key = self._image("before"), held("key")
        return F.struct(
            *(
                (F.coalesce(before[n], key[n]) if n in self.key else before[n]).alias(n)
                for n in self.row.names
            )
        )

    def _image(self, image: str) -> Column:
        """The row, with null for what was not sent."""
        row = held(image)
        return F.struct(
            *(F.when(~is_lacking(image, name), row[name]).alias(name) for name in self.row.names)
        )

    def saved(self) -> Column:
        """The row after a change; what was not sent, and the row before has, is that."""
        before, after = held("before"), held("after")
        return F.struct(
            *(
                F.when(self._is_had(n), before[n]).when(~is_lacking("after", n), after[n]).alias(n)
                for n in self.row.names
            )
        )

    def _is_had(self, name: str) -> Column:
        # Null there says no more than that the row before was not sent whole, as Postgres does
        # unless its replica identity is full: what is too large to be sent again is not null.
        had = (held("op") == "u") & held("before")[name].isNotNull()
        return had & is_lacking("after", name) & ~is_lacking("before", name)


def held(name: str) -> Column:
    """What is held of a record on the way, under a name that no column of a user's has."""
    return F.col(f"{_HELD}{name}")


def hold(**columns: Column) -> list[Column]:
    """Columns to be ``held``, by their names."""
    return [column.alias(f"{_HELD}{name}") for name, column in columns.items()]


def is_lacking(image: str, name: str) -> Column:
    """Whether the column is among those of the row that were not sent."""
    return F.array_contains(held(f"{image}_lacks"), name)
