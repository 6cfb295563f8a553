"""Crypto-shredding: encrypt the values of a subject by its own key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import ArrayType, BinaryType, MapType, StructField, StructType

from streamops.changelog.chains import WATERMARK
from streamops.erasure import conditions
from streamops.erasure.core.shredding import (
    SHRED_REASONS,
    UNSHRED_REASONS,
    Rejected,
    WrappingKey,
    shred_columns,
    unshred_columns,
)
from streamops.erasure.core.values import TYPES, ValueType
from streamops.erasure.encryption import SHREDDED, Encryption, parse_bound_names
from streamops.kernel.parameters import parse_distinct_names, refuse_type
from streamops.spark.columns import arrow_schema, column
from streamops.spark.json_columns import exact_json
from streamops.spark.operator import Operator


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


def unshred(
    columns: str | Sequence[str] | Mapping[str, str | None],
    *,
    subject: str,
    keys: DataFrame,
    wrapping_key: WrappingKey | None = None,
    rejected: Literal["null", "fail"] = "null",
    names: Mapping[str, str] | None = None,
) -> Operator:
    """Decrypt shredded values whose subject still has its key; others become null.

    Input        `subject`, as for shred · `columns`: binary, as shred wrote them · other columns of any
                 type · `keys`, as for shred
    Output       all columns, `columns` in their original types; null where a value was null, or cannot be
                 decrypted · `rejected`: null if all values of the row were decrypted, or were null; else
                 a struct of ``reason`` and ``columns``
    Output mode  any
    Watermark    not needed; an existing one stays
    State        none
    Order        rows may arrive in any order. The result depends on the keys that exist at the time of
                 processing, so a replay gives fewer values
    Batch        same rows

    Parameters
    ----------
    columns : str, sequence of str, or mapping of str to str
        Shredded columns. ``{"age": "int"}`` states the type of the values; by default it is read from the
        metadata of the column, which Spark's own file formats and Delta preserve, and Kafka and databases
        do not.
    subject, keys, wrapping_key
        As for ``shred``, with all versions of the keys.
    rejected : "null" or "fail"
        What happens to values that cannot be decrypted. "null": they are null, and ``rejected`` has the
        reason. "fail": the query fails, also because of an erased subject.
    names : mapping of str to str, optional
        The names of the columns when their values were shredded, if they were renamed since.

    Returns
    -------
    Operator
        For use with ``DataFrame.transform``.

    Raises
    ------
    SpecError
        A parameter has the wrong type; ``STREAMING_FRAME``; ``PARAMETER_WITHOUT_EFFECT``;
        ``VALUE_TYPE``: not a type that can be shredded.
    SchemaError, ColumnNotFound
        A column does not exist or has the wrong type; ``TYPE_UNSUPPORTED``: the type of the values is not
        given, and is not in the metadata of the column.
    RequirementError
        ``PACKAGE_MISSING``: the extra ``erasure`` is not installed.

    Examples
    --------
    >>> from streamops import erasure
    >>> log.transform(
    ...     erasure.unshred({"email": "string"}, subject="user", keys=keys)
    ... )

    Notes
    -----
    Reasons: those of ``shred``, and "not_shredded", the bytes are not a shredded value;
    "other_format", of a newer release; "other_type", the values have another type than the one
    stated; "no_key_version", the subject has keys, but not that version; "not_authentic", the bytes
    were changed, or belong to another subject or column, or the key is another one.

    See Also
    --------
    shred : encrypts the values.
    """
    types = dict(columns) if isinstance(columns, Mapping) else {}
    named = list(types) if isinstance(columns, Mapping) else columns
    parsed = parse_distinct_names(named, parameter="columns")
    spec = UnshredSpec(
        columns=parsed,
        types=tuple(types.get(name) for name in parsed),
        subject=subject,
        keys=keys,
        wrapping_key=wrapping_key,
        rejected=rejected,
        names=parse_bound_names(names, parsed),
    )
    return Operator(UnshredSpec.where, spec)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnshredSpec(Encryption):
    """The parameters of ``unshred``."""

    where: ClassVar[str] = "erasure.unshred"
    reasons: ClassVar[tuple[str, ...]] = UNSHRED_REASONS

    types: tuple[str | None, ...]

    def check(self, frame: DataFrame) -> None:
        """Refuse a frame without the columns, or whose types are unknown."""
        self.check_columns(frame)
        self._types(frame)

    def apply(self, frame: DataFrame) -> DataFrame:
        """Return the frame with readable columns."""
        types = self._types(frame)
        fields = {item.name: item for item in frame.schema.fields}
        metadata = [
            {k: v for k, v in (fields[name].metadata or {}).items() if k != SHREDDED}
            for name in self.columns
        ]
        results = [of.dtype for of in types]
        return self.replace_columns(
            frame, types, unshred_columns, results, metadata, of_values=False
        )

    def _types(self, frame: DataFrame) -> list[ValueType]:
        fields = {item.name: item for item in frame.schema.fields}
        found = []
        for name, given in zip(self.columns, self.types, strict=True):
            item = fields[name]
            if not isinstance(item.dataType, BinaryType):
                raise conditions.NOT_SHREDDED.error(
                    column=name, got=f"{name!r} of type {item.dataType.simpleString()}"
                )
            text = given or (item.metadata or {}).get(SHREDDED)
            if text is None:
                raise conditions.TYPE_UNKNOWN.error(
                    column=name, got=f"{name!r} without the metadata that erasure.shred sets"
                )
            found.append(_parse_type(text))
        return found


def _parse_type(text: object) -> ValueType:
    """The value type of Spark's name of a type."""
    found = ValueType.parse(text) if isinstance(text, str) else None
    if found is None:
        raise conditions.VALUE_TYPE.error(expected=", ".join(TYPES), got=repr(text))
    return found
