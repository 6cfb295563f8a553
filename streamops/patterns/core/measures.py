"""Measures: values of the rows of a match."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NoReturn

import numpy as np
import pyarrow as pa

from streamops.kernel.aggregation import Aggregation, Summary
from streamops.kernel.columns import combine_chunks
from streamops.kernel.errors import SpecError
from streamops.kernel.group_states import make_lists
from streamops.kernel.groups import Groups, Ids
from streamops.patterns import conditions

Function = Literal["first", "last", "collect_list", "classifiers", "aggregate"]


@dataclass(frozen=True, slots=True)
class Measure:
    """A value of the rows of a match, as a user writes it.

    Parameters
    ----------
    text : str
        The call that made it, without the module.
    function : str
        "aggregate", or a function that depends on the order of rows.
    variables : tuple of str
        The rows of these variables; without any, all rows of the match that have a variable.
    column : str, optional
    aggregation : Aggregation, optional
        Of an "aggregate".
    """

    text: str
    function: Function
    variables: tuple[str, ...]
    column: str | None = None
    aggregation: Aggregation | None = None

    def __repr__(self) -> str:
        return self.text

    def in_condition(self) -> SpecError:
        """The error for a measure in a condition."""
        return conditions.CONDITION_OVER_MATCH.error(got=f"{self.text} in a condition")

    def _refuse(self, other: object) -> NoReturn:
        raise self.in_condition()

    __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _refuse


@dataclass(frozen=True, slots=True)
class ResolvedMeasure:
    """A measure, resolved against the columns and the variables of the pattern.

    Parameters
    ----------
    name : str
        Of the output column.
    text : str
        As the user wrote it.
    function : str
    variables : frozenset of int
        Numbers of variables; empty for all.
    column : str, optional
    summary : Summary, optional
        Of an "aggregate".
    type : DataType
    """

    name: str
    text: str
    function: Function
    variables: frozenset[int]
    column: str | None
    summary: Summary | None
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Labels:
    """The rows of matches that have a variable, sorted by match and in the order of the match.

    Parameters
    ----------
    match, row, variable : arrays of int
        The match, the position of the row in the table, and the number of its variable.
    count : int
        Number of matches.
    """

    match: Ids
    row: Ids
    variable: Ids
    count: int

    def only(self, variables: frozenset[int]) -> Labels:
        """The rows of these variables; all of them if there are none."""
        if not variables:
            return self
        rows = np.flatnonzero(np.isin(self.variable, sorted(variables)))
        return Labels(self.match[rows], self.row[rows], self.variable[rows], self.count)


def measure(
    what: ResolvedMeasure, labels: Labels, rows: pa.Table, variables: tuple[str, ...]
) -> pa.Array:
    """The measure of every match."""
    found = labels.only(what.variables)
    if what.summary is not None:
        used = rows.select([*what.summary.inputs]) if what.summary.inputs else rows.select([])
        taken = (
            used.take(pa.array(found.row)) if used.num_columns else rows.take(pa.array(found.row))
        )
        return what.summary.estimate(what.summary.update(Groups(found.match, found.count), taken))
    sizes = np.bincount(found.match, minlength=found.count)
    if what.function == "classifiers":
        names = pa.array(variables, pa.string()).take(pa.array(found.variable))
        return make_lists(names, sizes)
    assert what.column is not None
    column = combine_chunks(rows.column(what.column))
    if what.function == "collect_list":
        return make_lists(column.take(pa.array(found.row)), sizes)
    ends = np.cumsum(sizes)
    at = ends - sizes if what.function == "first" else ends - 1
    some = sizes > 0
    index = np.zeros(found.count, np.int64)
    index[some] = found.row[at[some]]
    return column.take(pa.array(index, mask=~some))
