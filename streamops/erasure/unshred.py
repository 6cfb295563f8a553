"""Decrypt the values of subjects that still have a key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType

from streamops.erasure import conditions
from streamops.erasure.core.keys import WrappingKey
from streamops.erasure.core.shredding import UNSHRED_REASONS, unshred_columns
from streamops.erasure.core.values import TYPES, ValueType
from streamops.erasure.encryption import SHREDDED, Encryption, parse_bound_names
from streamops.kernel.parameters import parse_distinct_names
from streamops.spark.operator import Operator

__all__ = ["unshred"]


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
