"""How a change stream may contradict itself, and how that is told when a table is computed."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streamops.changelog.change_types import CHANGE_TYPES
from streamops.kernel.errors import ChangeStreamError
from streamops.spark.columns import column

__all__ = ["checked"]

_FAULT, _STANDS = "__streamops_fault", "__streamops_stands"
_MARK = "\0"  # where a message has the row
_EACH_ONCE = (
    "fold the changes of all micro-batches, each once; upserts without preimages go through "
    "changes.normalize first"
)
_ALONE = (
    f"{_EACH_ONCE}; an update that changes the key must be a delete and an insert, as "
    "changes.from_delta tells those of Delta's feed"
)
_FAULTS = {
    "UNKNOWN_CHANGE": (
        "a change has a word that is none",
        f"one of {', '.join(CHANGE_TYPES)}",
        _EACH_ONCE,
    ),
    "INSERTED_TWICE": ("a row was inserted that is already there", "an update", _EACH_ONCE),
    "PREIMAGE_NOT_PUBLISHED": (
        "a row was taken back that was not published so",
        "the row as it was published before",
        _EACH_ONCE,
    ),
    "POSTIMAGE_ALONE": ("a postimage without its preimage", "a preimage before it", _ALONE),
    "DELETED_UNPUBLISHED": ("a delete of a row that is not there", "a row", _EACH_ONCE),
    "PREIMAGE_ALONE": ("a row was taken back and never replaced", "its postimage", _ALONE),
    "REVISION_OUT_OF_STEP": (
        "a revision came twice",
        "a revision above the one before",
        _EACH_ONCE,
    ),
    "NO_SEQUENCE": (
        "a change does not say where in the order it stands",
        "no null in `sequence`",
        _EACH_ONCE,
    ),
}


def checked(
    frame: DataFrame, fault: Column, stands: Column, names: Sequence[str], *, where: str
) -> DataFrame:
    """These columns of the rows that stand, or an error where one has a fault.

    As one filter. A column that nobody reads is not computed; and of two filters Spark drops the
    first, where it knows from the second that no row is left.
    """
    passes = F.when(F.col(_FAULT).isNull(), F.col(_STANDS))
    shown_row = F.to_json(F.struct(*map(column, names)))
    for code, (what, expected, fix) in _FAULTS.items():
        error = ChangeStreamError(code, what, where=where, got=_MARK, expected=expected, fix=fix)
        begin, end = map(F.lit, str(error).split(_MARK))
        raised = F.raise_error(F.concat(begin, shown_row, end)).cast("boolean")
        passes = passes.when(F.col(_FAULT) == code, raised)
    judged = frame.withColumn(_FAULT, fault).withColumn(_STANDS, stands)
    return judged.where(passes).select(*map(column, names))
