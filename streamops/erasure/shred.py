"""Crypto-shredding: encrypt the values of a subject by its own key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import ArrayType, MapType, StructField, StructType

from streamops.erasure import conditions
from streamops.erasure.core.keys import WrappingKey
from streamops.erasure.core.shredding import SHRED_REASONS, Rejected, shred_columns
from streamops.erasure.core.values import TYPES, ValueType
from streamops.erasure.encryption import SHREDDED, Encryption, parse_bound_names
from streamops.kernel.parameters import parse_distinct_names, refuse_type
from streamops.spark.columns import arrow_schema, column
from streamops.spark.json_text import exact_json
from streamops.spark.metadata import WATERMARK
from streamops.spark.operator import Operator

__all__ = ["shred"]


def shred(
    columns: str | Sequence[str],
    *,
    subject: str,
    keys: DataFrame,
    wrapping_key: WrappingKey | None = None,
    rejected: Rejected = "null",
    names: Mapping[str, str] | None = None,
) -> Operator:
    """Encrypt values by a key per subject, so that deleting the key deletes the values everywhere.

    Apply it before anything is stored: what was written before remains readable. Values are encrypted with
    AES-256-GCM and nonces that are derived from the value: equal values of one subject in one column are
    equal bytes, and all others differ. The columns become ``binary``; docs/erasure.md states what each
    operator does with them.

    Input        `subject`: string or integer, without a collation · `columns`: boolean, integers, float,
                 double, decimal, string, binary, date, timestamp, timestamp_ntz · other columns of any
                 type · `keys` as KeyTable returns it
    Output       all columns, `columns` as binary, nulls as nulls · `rejected`: null if all values of the
                 row were encrypted, or were null; else a struct of ``reason`` and ``columns``
    Output mode  any
    Watermark    not needed; an existing one stays. The event time itself cannot be shredded
    State        none
    Order        rows may arrive in any order
    Batch        same rows

    Parameters
    ----------
    columns : str or sequence of str
        Columns with values about the subject. Make maps, arrays and structs strings first; the error about
        them has the expression that keeps every value.
    subject : str
        Column of the person, or whatever else may be erased. Its values stay readable in every copy of the
        row: use a surrogate id, and not an e-mail address. It is used in its form as a string.
    keys : DataFrame
        The key table, as a batch frame: ``subject`` (string), ``version`` (int), ``key`` (binary, null if
        erased). A subject may have several versions, of which the highest encrypts.
    wrapping_key : function, optional
        Returns the 32 bytes by which the keys are wrapped. It runs on the executors. None: `keys` has
        keys that are not wrapped.
    rejected : "null", "route" or "fail"
        What happens to values without a usable key. "null": they become null, and are lost. "route": also
        the readable values are in ``rejected.row``; split them from the rest before anything is stored.
        "fail": the query fails.
    names : mapping of str to str, optional
        The names that the values of a column are bound to, if not that of the column itself. Values of
        two columns can be compared if both are bound to one name.

    Returns
    -------
    Operator
        For use with ``DataFrame.transform``.

    Raises
    ------
    SpecError
        A parameter has the wrong type; ``STREAMING_FRAME``; ``PARAMETER_WITHOUT_EFFECT``.
    SchemaError, ColumnNotFound
        A column does not exist or has the wrong type; ``COLUMN_TYPE``.
    RequirementError
        ``PACKAGE_MISSING``: the extra ``erasure`` is not installed.

    Examples
    --------
    >>> from streamops import erasure
    >>> def write(batch, batch_id):
    ...     batch.persist()
    ...     keys = table.create_keys(batch, subject="user")
    ...     shredded = batch.transform(erasure.shred(["email", "ip"], subject="user", keys=keys))
    ...     log(shredded, batch_id)

    Notes
    -----
    Reasons: "no_subject", the subject is null; "no_key", it is not in `keys`; "erased", its key was
    deleted; "unusable_key", the entry is not a key, is wrapped by another key, or contradicts another
    entry of the same version. ``StreamopsError`` ``ROW_REJECTED`` with ``rejected="fail"``.

    See Also
    --------
    unshred : the values again, while the key exists.
    KeyTable : creates keys, exactly one per subject, and deletes them.

    References
    ----------
    Kleppmann: "Designing Data-Intensive Applications", chapter 11, "Limitations of immutability".
    """
    parsed = parse_distinct_names(columns, parameter="columns")
    spec = ShredSpec(
        columns=parsed,
        subject=subject,
        keys=keys,
        wrapping_key=wrapping_key,
        rejected=rejected,
        names=parse_bound_names(names, parsed),
    )
    return Operator(ShredSpec.where, spec)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShredSpec(Encryption):
    """The parameters of ``shred``."""

    where: ClassVar[str] = "erasure.shred"
    reasons: ClassVar[tuple[str, ...]] = SHRED_REASONS

    def check(self, frame: DataFrame) -> None:
        """Refuse a frame without the columns, or with values that cannot be shredded."""
        self.check_columns(frame)
        for item in self._fields(frame):
            metadata = item.metadata or {}
            if WATERMARK in metadata:
                raise conditions.EVENT_TIME_SHREDDED.error(got=f"column {item.name!r}")
            if SHREDDED in metadata:
                raise conditions.ALREADY_SHREDDED.error(
                    got=f"column {item.name!r}, with values of type {metadata[SHREDDED]}"
                )
            self._type_of(frame, item)

    def apply(self, frame: DataFrame) -> DataFrame:
        """Return the frame with shredded columns."""
        fields = self._fields(frame)
        return self.replace_columns(
            frame,
            [self._type_of(frame, item) for item in fields],
            shred_columns,
            [pa.binary()] * len(fields),
            [{**(item.metadata or {}), SHREDDED: item.dataType.simpleString()} for item in fields],
            of_values=True,
        )

    def _fields(self, frame: DataFrame) -> list[StructField]:
        fields = {item.name: item for item in frame.schema.fields}
        return [fields[name] for name in self.columns]

    def _type_of(self, frame: DataFrame, item: StructField) -> ValueType:
        schema = arrow_schema(frame.select(column(item.name)))
        found = ValueType.of(schema.field(0).type)
        if found is None:
            dtype = item.dataType
            is_nested = isinstance(dtype, ArrayType | MapType | StructType)
            text = (
                exact_json(item.name, is_map=isinstance(dtype, MapType))
                if is_nested
                else f"F.col({item.name!r}).cast('string')"
            )
            facts = {"types": ", ".join(TYPES), "conversion": text}
            refuse_type(conditions.NOT_SHREDDABLE, schema, item.name, **facts)
        return found
