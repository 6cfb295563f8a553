"""Comparisons with the previous period, bound to the schema of their input."""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamops.changelog.change_types import CHANGE_TYPE, REVISION
from streamops.kernel.calendar import Period
from streamops.kernel.columns import to_floats
from streamops.kernel.errors import CapacityError
from streamops.kernel.time import format_instant
from streamops.windows.core.spec import INSTANT, WindowSpec

__all__ = ["CompareSpec", "Revised", "change_type", "compared"]

Revised = Literal["never", "upserts", "changes"]

_WIDEST = 38  # digits of a decimal


@dataclass(frozen=True, slots=True)
class CompareSpec(WindowSpec):
    """A comparison over columns of known types.

    Parameters
    ----------
    period : Period
        How far back.
    values : tuple of str
        The columns that are compared.
    revised : str
        Whether the input is revised, and how it says so: by upserts with a revision, or by a
        change stream.
    """

    period: Period
    values: tuple[str, ...]
    revised: Revised

    @property
    def output(self) -> pa.Schema:
        """Keys, window, what is said of each value; then what corrections and routing add."""
        said = []
        for name in self.values:
            kind = self.input.field(name).type
            said += [(name, kind), (f"previous_{name}", kind)]
            said += [(f"change_{name}", change_type(kind)), (f"rate_{name}", pa.float64())]
        extra: list[tuple[str, pa.DataType]] = []
        if self.revises:
            extra.append((REVISION, pa.int32()))
        if self.takes_back:
            extra.append((CHANGE_TYPE, pa.string()))
        if self.routes:
            extra.append(("late", self.late))
        return pa.schema([*self.keys, *((name, INSTANT) for name in self.place), *said, *extra])

    @property
    def origins(self) -> dict[str, str]:
        """Columns of the output that hold values of one of the input."""
        pairs = ((name, name) for name in (*self.by, *self.values))
        return {**dict(pairs), **{f"previous_{name}": name for name in self.values}}

    @property
    def shape(self) -> Mapping[str, Any]:
        """The period."""
        return self.period.identity

    @property
    def identity(self) -> Mapping[str, Any]:
        """Everything the state depends on."""
        own = {
            "values": [[name, str(self.input.field(name).type)] for name in self.values],
            "revised": self.revised,
        }
        said = super(CompareSpec, self).identity
        return {name: value for name, value in said.items() if name != "agg"} | own


def change_type(kind: pa.DataType) -> pa.DataType:
    """The type of the difference of two values of this type."""
    if pa.types.is_decimal(kind):
        return pa.decimal128(min(kind.precision + 1, _WIDEST), kind.scale)
    return pa.float64() if pa.types.is_floating(kind) else pa.int64()


def compared(
    spec: CompareSpec,
    about: Sequence[pa.Array],
    values: Sequence[pa.Array],
    previous: Sequence[pa.Array],
) -> list[pa.Array]:
    """What is said of the values, in the order of the output; ``about`` says of which windows."""
    said = []
    for name, value, before in zip(spec.values, values, previous, strict=True):
        try:
            change = _change(value, before)
        except pa.ArrowInvalid:
            raise _overflow(spec, about, name, value, before) from None
        base = to_floats(before)
        known = np.asarray(change.is_valid()) & (base != 0)
        with np.errstate(invalid="ignore", over="ignore"):  # infinities, as IEEE 754 has them
            rate = np.divide(to_floats(change), base, out=np.zeros(len(base)), where=known)
        said += [value, before, change, pa.array(rate, mask=~known)]
    return said


def _change(value: pa.Array, before: pa.Array) -> pa.Array:
    kind = change_type(value.type)
    wide = pa.decimal256(_WIDEST + 1, kind.scale) if pa.types.is_decimal(kind) else kind
    return pc.subtract_checked(value.cast(wide), before.cast(wide)).cast(kind)


def _overflow(
    spec: CompareSpec, about: Sequence[pa.Array], name: str, value: pa.Array, before: pa.Array
) -> CapacityError:
    """The error of the first change that does not fit."""

    def fails(row: int) -> bool:
        try:
            _change(value[: row + 1], before[: row + 1])
        except pa.ArrowInvalid:
            return True
        return False

    row = bisect.bisect_left(range(len(value)), True, key=fails)
    keys = {key: column[row].as_py() for key, column in zip(spec.by, about, strict=False)}
    begin = about[len(spec.by)].cast(pa.int64())[row].as_py()
    kind = change_type(value.type)
    words = f"decimal({kind.precision},{kind.scale})" if pa.types.is_decimal(kind) else "bigint"
    return CapacityError(
        "CHANGE_OVERFLOW",
        "a change does not fit into its type",
        where="windows.compare",
        got=f"{value[row].as_py()} after {before[row].as_py()} in {name!r} of {keys}, "
        f"window of {format_instant(begin)}",
        expected=f"changes that fit into {words}",
        fix=f"cast {name!r} to double before",
    )
