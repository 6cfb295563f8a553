"""What ``shred`` and ``unshred`` have in common: parameters, the join with the keys, the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, DataType, IntegralType, StringType, StructField

from streamops.erasure import conditions
from streamops.erasure.core.shredding import Columns, Rejected, ShreddedColumn, WrappingKey
from streamops.erasure.core.values import ValueType
from streamops.kernel.errors import located
from streamops.kernel.parameters import require_columns, require_name, require_package
from streamops.kernel.versions import arrow_udf
from streamops.spark.columns import (
    column,
    refuse_collated,
    refuse_duplicates,
    require_frame,
    spark_schema,
)

REJECTED = "rejected"
SHREDDED = "streamops.shredded"
"""Key of the metadata of a shredded column: the type of its values."""

_SUBJECT, _VERSIONS, _RESULT = (f"__streamops_{name}" for name in ("subject", "keys", "result"))

Run = Callable[..., tuple[list[pa.Array], pa.Array]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Encryption:
    """What both operators have in common. Its repr has neither keys nor wrapping key."""

    where: ClassVar[str]
    adds: ClassVar[tuple[str, ...]] = (REJECTED,)
    reasons: ClassVar[tuple[str, ...]]

    columns: tuple[str, ...] = field(metadata={"shown": lambda names: repr([*names])})
    subject: str
    keys: DataFrame = field(repr=False)
    wrapping_key: WrappingKey | None = field(repr=False)
    rejected: Rejected
    names: tuple[tuple[str, str], ...] = field(metadata={"shown": lambda names: repr(dict(names))})

    def __post_init__(self) -> None:
        if self.subject in self.columns:
            raise conditions.SAME_COLUMN.error(
                got=f"subject={self.subject!r} in columns={[*self.columns]!r}"
            )
        require_frame(self.keys, "`keys`")
        if self.keys.isStreaming:
            raise conditions.KEYS_ARE_A_STREAM.error(got="a streaming frame")
        if self.wrapping_key is not None and not callable(self.wrapping_key):
            raise conditions.WRAPPING_KEY_NOT_A_FUNCTION.error(
                got=f"a value of type {type(self.wrapping_key).__name__}"
            )
        require_package(
            "cryptography.hazmat.primitives.ciphers.aead",
            package="cryptography",
            extra="erasure",
        )

    @property
    def marked(self) -> str:
        """The subject: it is in every result."""
        return self.subject

    def counts(self) -> Mapping[str, Column]:
        """Count all rows, and rows with rejected values by reason."""
        reason = column(REJECTED)["reason"]
        return {
            "rows": F.count(F.lit(1)),
            "rejected": F.count(reason),
            "side_output": F.count(reason),
            **{name: F.count_if(reason == name) for name in self.reasons},
        }

    def check_columns(self, frame: DataFrame) -> None:
        """Refuse a frame, or a key table, without the columns."""
        fields = {item.name: item for item in frame.schema.fields}
        needed = {"columns": self.columns, "subject": [self.subject]}
        require_columns(fields, needed)
        refuse_collated(frame, [self.subject])
        require_subject(fields[self.subject], f"column {self.subject!r}")
        with located(at="keys"):
            _check_keys(self.keys)

    def replace_columns(
        self,
        frame: DataFrame,
        types: Sequence[ValueType],
        run: Run,
        results: Sequence[pa.DataType],
        metadata: Sequence[dict[str, Any]],
        *,
        of_values: bool,
    ) -> DataFrame:
        """Join the keys, call the function for the columns, and replace the columns by its results."""
        bound = dict(self.names)
        spec = Columns(
            self.where,
            tuple(
                ShreddedColumn(name, bound.get(name, name), of)
                for name, of in zip(self.columns, types, strict=True)
            ),
            self.rejected,
            self.wrapping_key,
        )
        rejected = pa.field(REJECTED, spec.rejected_type(of_values=of_values))
        fields = [pa.field(f"c{i}", dtype) for i, dtype in enumerate(results)]
        inputs = F.struct(*(column(name).alias(f"c{i}") for i, name in enumerate(self.columns)))
        subject = column(self.subject).cast("string")
        entries = _group_keys(self.keys)
        joined = frame.join(entries, subject == F.col(_SUBJECT), "left")
        of_rows = _call(run, spec, pa.struct([*fields, rejected]))
        # As a row of its own: filters on other columns still reach the source. Spark would push a filter on
        # the results through a plain column, too, and call the function once more for it.
        result = F.explode(F.array(of_rows(subject, F.col(_VERSIONS), inputs)))
        found = joined.select("*", result.alias(_RESULT))
        replaced = {
            name: F.col(_RESULT)[f"c{i}"].alias(name, metadata=metadata[i])
            for i, name in enumerate(self.columns)
        }
        return found.select(
            *(replaced.get(name, column(name)) for name in frame.columns),
            F.col(_RESULT)[REJECTED].alias(REJECTED),
        )


def _call(run: Run, spec: Columns, result: pa.DataType) -> Callable[..., Column]:
    """A function of the subject, its keys and the columns, as a function of columns."""

    @located(spec.where)
    def crypt(subject: pa.Array, versions: pa.Array, values: pa.Array) -> pa.Array:
        results, rejected = run(spec, subject.cast(pa.string()), versions, values.flatten())
        return pa.StructArray.from_arrays([*results, rejected], fields=list(result))

    dtype = spark_schema(pa.schema([("result", result)])).fields[0].dataType
    found: Callable[..., Column] = arrow_udf(crypt, dtype, None)
    return found


def _group_keys(keys: DataFrame) -> DataFrame:
    """One row per subject, with all versions of its key."""
    entry = F.struct(
        F.col("version").cast("bigint").alias("version"), F.col("key").cast("binary").alias("key")
    )
    subject = F.col("subject").cast("string")
    entries = keys.where(F.col("version").isNotNull())
    return entries.groupBy(subject.alias(_SUBJECT)).agg(F.collect_list(entry).alias(_VERSIONS))


def _check_keys(keys: DataFrame) -> None:
    refuse_duplicates(keys)
    fields = {item.name: item for item in keys.schema.fields}
    require_columns(fields, {"keys": ("subject", "version", "key")})
    refuse_collated(keys, ["subject"])
    require_subject(fields["subject"], "column 'subject'")
    for name, accepted, text in (("version", IntegralType, "int"), ("key", BinaryType, "binary")):
        dtype = fields[name].dataType
        if not isinstance(dtype, accepted):
            raise conditions.KEY_TABLE_TYPE.error(
                column=name, dtype=text, got=f"{name!r} of type {dtype.simpleString()}"
            )


def require_subject(item: StructField, what: str) -> None:
    """Refuse a column that is neither text nor integers: its text would be the subject of nobody."""
    dtype: DataType = item.dataType
    if not isinstance(dtype, StringType | IntegralType):
        raise conditions.SUBJECT_TYPE.error(
            column=what, name=item.name, got=f"{item.name!r} of type {dtype.simpleString()}"
        )


def parse_bound_names(
    names: Mapping[str, str] | None, columns: Sequence[str]
) -> tuple[tuple[str, str], ...]:
    """The names that values are bound to, for columns that are shredded."""
    found = dict(names or {})
    for name, bound in found.items():
        require_name(bound, parameter="names")
        if name not in columns:
            raise conditions.NAME_WITHOUT_COLUMN.error(
                name=name, got=f"names={found!r}, columns={[*columns]!r}"
            )
    return tuple(found.items())
