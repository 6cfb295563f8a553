"""Stored sketches: values in plain Python, and expressions over columns of them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, Self

import numpy as np
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from streamops.kernel.errors import SpecError, located
from streamops.kernel.formatted import python_value
from streamops.kernel.groups import Groups
from streamops.kernel.parameters import Text
from streamops.kernel.versions import arrow_udf, try_cast
from streamops.sketches import conditions
from streamops.sketches.aggregation import SketchAggregate, require_like
from streamops.sketches.core.sketch import (
    Format,
    Framed,
    Parameter,
    Sketch,
    estimate_blobs,
    fill_rows,
    read_header,
    read_states,
    unpack_frames,
)
from streamops.spark.columns import column as quoted
from streamops.spark.columns import spark_schema

SKETCH_TYPES: Mapping[str, str] = {
    "bloom": "streamops.sketches.bloom",
    "frequency": "streamops.sketches.count_min",
    "heavy_hitters": "streamops.sketches.top_k",
    "hll": "streamops.sketches.hll",
    "kll": "streamops.sketches.kll",
    "minhash": "streamops.sketches.minhash",
    "theta": "streamops.sketches.theta",
}
"""The module of each type of sketch, which has a :class:`SketchType` with the name ``SKETCH_TYPE``."""


@dataclass(frozen=True, slots=True)
class StoredSketch:
    """A stored sketch as a value, which is equal to others with the same bytes.

    Types with more methods have a subclass. ``sketch`` and ``states`` are for these.

    Parameters
    ----------
    type : str
        Such as "hll".
    parameters : mapping
        Parameters that must be equal in sketches that are merged.
    """

    type: str = field(compare=False)
    parameters: Mapping[str, Parameter] = field(compare=False)
    blob: bytes = field(repr=False)
    sketch: Sketch = field(repr=False, compare=False)
    states: tuple[pa.Array, ...] = field(repr=False, compare=False)

    @classmethod
    def of(cls, sketch: Sketch, states: Sequence[pa.Array]) -> Self:
        """The value of one state."""
        (blob,) = Framed(sketch).estimate(states).to_pylist()
        return cls(sketch.format.kind, dict(sketch.parameters), blob, sketch, tuple(states))

    def estimate(self) -> Any:
        """The estimate, as in the result of the aggregate, in Python types; text where Python has no value."""
        return python_value(self.sketch.estimate(self.states)[0])

    def bounds(self) -> tuple[Any, Any]:
        """Lower and upper bounds of the true value, as documented for the type of sketch."""
        lower, upper = self.sketch.bounds(self.states)
        return lower[0].as_py(), upper[0].as_py()

    def merge(self, *others: StoredSketch) -> Self:
        """The merged sketch.

        Raises
        ------
        SketchFormatError
            ``SKETCH_KIND``, ``SKETCH_UNSUPPORTED`` or ``SKETCH_PARAMETERS``: they cannot be merged.
        """
        blobs = pa.array([self.blob, *(other.blob for other in others)], pa.binary())
        with located("StoredSketch.merge"):
            states = read_states(self.sketch, blobs)
        groups = Groups(np.zeros(len(blobs), np.int64), 1)
        return self.of(self.sketch, self.sketch.merge(groups, states))

    def to_bytes(self) -> bytes:
        """The framed bytes, as stored."""
        return self.blob

    def to_datasketches(self) -> bytes:
        """The sketch as an image of Apache DataSketches, which Spark's own functions read, too.

        Raises
        ------
        SpecError
            ``SKETCH_UNSUPPORTED``: Apache DataSketches has no sketch of this type.
        SchemaError
            ``SKETCH_UNSUPPORTED``: heavy hitters that are neither strings nor longs.
        SketchFormatError
            ``SKETCH_UNSUPPORTED``: quantiles of values with a NaN.
        """
        sketch = self.sketch
        if not hasattr(sketch, "images"):
            with located("StoredSketch.to_datasketches"):
                _refuse_exchange(f"a sketch of the type {self.type!r}")
        return bytes(sketch.images(self.states)[0].as_py())

    def _states_of(self, other: StoredSketch) -> list[pa.Array]:
        """The states of another sketch, which has the type and parameters of this one."""
        blobs = pa.array([other.blob], pa.binary())
        with located(type(self).__name__):
            return read_states(self.sketch, blobs)


@dataclass(frozen=True, slots=True)
class SketchType:
    """How to read a type of sketch.

    ``make`` returns the sketch with the parameters of a header, or raises a ``KeyError``, ``TypeError``
    or ``ValueError``. ``value`` is the class of stored sketches.
    """

    format: Format
    make: Callable[[Mapping[str, Parameter]], Sketch]
    value: type[StoredSketch] = StoredSketch


def make_by(
    aggregate: Callable[..., SketchAggregate], **renamed: str
) -> Callable[[Mapping[str, Parameter]], Sketch]:
    """Make sketches by an aggregate whose parameters, which may be renamed, are those of the sketch."""

    def make(parameters: Mapping[str, Parameter]) -> Sketch:
        given: dict[str, Any] = {renamed.get(key, key): v for key, v in parameters.items()}
        like = aggregate(function="sketch", column="items", is_stored=True, **given)
        sketch = like.sketch(None)
        if dict(sketch.parameters) != dict(parameters):
            raise ValueError(f"{', '.join(sketch.parameters)}, and nothing else")
        return sketch

    return make


def read(blob: bytes) -> StoredSketch:
    """Read a stored sketch, to query and merge it in plain Python.

    Parameters
    ----------
    blob : bytes
        Bytes of a stored sketch.

    Returns
    -------
    StoredSketch
        With ``estimate()``, ``bounds()``, ``merge(other)``, ``to_bytes()``, and the methods of its
        type.

    Raises
    ------
    SketchFormatError
        ``SKETCH_CORRUPT``, ``SKETCH_UNSUPPORTED``, ``SKETCH_KIND`` or
        ``SKETCH_PARAMETERS``.
    SpecError
        ``PARAMETER_TYPE``: it is not bytes.

    Examples
    --------
    >>> from streamops import sketches
    >>> sketches.read(row["users"]).merge(sketches.read(other["users"])).estimate()
    """
    if not isinstance(blob, bytes | bytearray | memoryview):  # a number would be as many zeros
        raise conditions.NOT_BYTES.error(got=f"an object of type {type(blob).__name__}")
    blob = bytes(blob)
    header = read_header(blob)
    if header.format.kind not in SKETCH_TYPES:
        raise conditions.SKETCH_UNKNOWN.error(
            sketch_types=", ".join(sorted(SKETCH_TYPES)), got=header.format.kind
        )
    known: SketchType = importlib.import_module(SKETCH_TYPES[header.format.kind]).SKETCH_TYPE
    blobs = pa.array([blob], pa.binary())
    unpack_frames(blobs, known.format, header.parameters)  # refuses other versions
    try:
        sketch = known.make(header.parameters)
    except (KeyError, TypeError, ValueError) as error:
        expected = error.expected if isinstance(error, SpecError) else error
        raise conditions.SKETCH_PARAMETERS.error(
            sketch=header.format.kind,
            parameters=expected,
            got=", ".join(f"{name}={value!r}" for name, value in header.parameters.items()),
        ) from error
    return known.value.of(sketch, read_states(sketch, blobs))


def as_item(column: Column, dtype: Text) -> Column:
    """The value cast to this flat type; null if it has no such value, as 1.5 has no bigint."""
    value = try_cast(column, dtype)
    # Compared only if the cast succeeded: the comparison casts, too, and would fail the query.
    return F.when(value.isNotNull(), F.when(value == column, value))


def map_columns(
    run: Callable[..., pa.Array],
    result: pa.DataType,
    *columns: Column,
    name: str | None = None,
    inputs: Sequence[pa.DataType] | None = None,
) -> Column:
    """A function of whole columns, of binary type or of these types, as a column of this type.

    Its type hints are arrays. The column has its name, or `name`.
    """
    if name is not None:
        run.__name__ = name
    dtype = spark_schema(pa.schema([("result", result)])).fields[0].dataType
    inputs = inputs or [pa.binary()] * len(columns)
    found: Column = arrow_udf(run, dtype, inputs)(*columns)
    return found


def _map_rows(answer: Callable[..., pa.Array], result: pa.DataType, *columns: str) -> Column:
    """A function of columns without nulls as a column; null where one of them is null."""

    def run(*arrays: pa.Array) -> pa.Array:
        present = np.logical_and.reduce([np.asarray(array.is_valid()) for array in arrays])
        chosen = arrays if present.all() else (a.filter(pa.array(present)) for a in arrays)
        return fill_rows(answer(*chosen), present)

    # As many parameters as columns: Spark reads them from the signature.
    def of_one(column: pa.Array) -> pa.Array:
        return run(column)

    def of_two(left: pa.Array, right: pa.Array) -> pa.Array:
        return run(left, right)

    return map_columns(of_one if len(columns) == 1 else of_two, result, *map(quoted, columns))


def compare_columns(
    where: str,
    result: pa.DataType,
    answer: Callable[[list[pa.Array], list[pa.Array]], pa.Array],
    left: str,
    right: str,
    like: SketchAggregate,
) -> Column:
    """A function of the states of two columns of sketches, row by row; null if one of them is null."""
    sketch, location = like.sketch(None), f"{where}({left!r}, {right!r}, like={like!r})"

    def run(*columns: pa.Array) -> pa.Array:
        with located(location):
            one, other = (read_states(sketch, blobs) for blobs in columns)
        return answer(one, other)

    return _map_rows(run, result, left, right)


def estimate(column: str, *, like: SketchAggregate) -> Column:
    """The estimates of the sketches in a column, for ``select`` and ``withColumn``.

    Parameters
    ----------
    column : str
        Stored sketches: ``binary``. The estimate of a null is null.
    like : SketchAggregate
        The aggregate that made them, with their type and parameters.

    Raises
    ------
    SpecError
        ``PARAMETER_TYPE``: `like` is not an aggregate of a sketch.
    SketchFormatError
        While the query runs: bytes that are not such a sketch.

    Examples
    --------
    >>> minutes.select(estimate("users", like=hll_sketch_agg("user")).alias("users"))
    DataFrame[users: struct<estimate:bigint,lower:bigint,upper:bigint,relative_error:double>]
    """
    require_like(like)
    sketch = like.sketch(None)
    answer, location = like.answer(sketch), f"sketches.estimate({column!r}, like={like!r})"

    def run(blobs: pa.Array) -> pa.Array:
        with located(location):
            return estimate_blobs(sketch, answer, blobs)

    return map_columns(run, answer.result, quoted(column), name="estimate")


def to_datasketches(column: str, *, like: SketchAggregate) -> Column:
    """The stored sketches of a column as images of Apache DataSketches: ``binary``, without a frame.

    Spark's own functions read them: ``hll_sketch_estimate``, ``hll_union``, ``hll_union_agg``;
    ``theta_sketch_estimate``, ``theta_union``, ``theta_intersection``, ``theta_difference``.

    Parameters
    ----------
    column : str
        Stored sketches. The image of a null is null.
    like : SketchAggregate
        The aggregate that made them.

    Raises
    ------
    SpecError
        ``PARAMETER_TYPE``; ``SKETCH_UNSUPPORTED``: Apache DataSketches has no sketch of this type.
    SketchFormatError
        While the query runs: bytes that are not such a sketch.

    Examples
    --------
    >>> minutes.select(
    ...     F.hll_sketch_estimate(to_datasketches("users", like=hll_sketch_agg("user")))
    ... )
    """
    sketch, location = _exchanged(column, like, "sketches.to_datasketches")

    def images(blobs: pa.Array) -> pa.Array:
        with located(location):
            return sketch.images(read_states(sketch, blobs))

    return _map_rows(images, pa.binary(), column)


def from_datasketches(column: str, *, like: SketchAggregate, dtype: Text | None = None) -> Column:
    """The images of Apache DataSketches in a column as stored sketches, to merge and query them.

    Spark's own sketches are such images: ``hll_sketch_agg(xxhash64(user), 12)`` has the same items as
    ``hll_sketch_agg("user", p=12)``, and ``theta_sketch_agg(xxhash64(user), 12)`` the same as
    ``theta_sketch_agg("user", k=4096)``. (It also counts a null, unless it is filtered out.) A sketch of
    ``user`` itself has other items, unless they are longs that are hashes: merged with a sketch of
    streamops it would count a value twice.

    Parameters
    ----------
    column : str
        Images: ``binary``. The sketch of a null is null.
    like : SketchAggregate
        The aggregate of such sketches, with the parameters that they must have.
    dtype : "double", "float" or "bigint", optional
        Type of the items of KLL sketches: see :meth:`StoredKll.from_datasketches`.

    Raises
    ------
    SpecError
        ``PARAMETER_TYPE``; ``SKETCH_UNSUPPORTED``: Apache DataSketches has no sketch of this type;
        ``VALUE_TYPE``.
    SketchFormatError
        While the query runs: ``SKETCH_CORRUPT``, ``SKETCH_PARAMETERS``, ``SKETCH_KIND``.
    """
    sketch, location = _exchanged(column, like, "sketches.from_datasketches")
    with located(location):
        require_image_type(dtype, sketch)
    options = {} if dtype is None else {"dtype": dtype}

    def stored(images: pa.Array) -> pa.Array:
        with located(location):
            states = sketch.from_images(images.cast(pa.binary()), **options)
        return Framed(sketch).estimate(states)

    return _map_rows(stored, pa.binary(), column)


def require_image_type(dtype: str | None, sketch: Sketch) -> None:
    """Refuse a type that the items of images of a sketch do not have."""
    known = getattr(sketch, "image_types", ())
    if dtype is not None and dtype not in known:
        condition = conditions.IMAGE_TYPE_UNKNOWN if known else conditions.IMAGE_TYPE_UNUSED
        raise condition.error(known=", ".join(known), got=f"dtype={dtype!r}")


def _exchanged(column: str, like: object, where: str) -> tuple[Any, str]:
    sketch = like.sketch(None) if isinstance(like, SketchAggregate) else None
    if not hasattr(sketch, "images"):
        _refuse_exchange(f"like={like!r}")
    return sketch, f"{where}({column!r}, like={like!r})"


def _refuse_exchange(got: str) -> NoReturn:
    raise conditions.NO_APACHE_SKETCH.error(got=got)
