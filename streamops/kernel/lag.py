"""Another lag of an operator after a restart, while Spark's watermark is still that of before.

Spark's watermark lies ``Spec.lag`` behind that of the operator. A query that starts again has the watermark that Spark
computed with the lag of before, until event times have moved it. The state says so in a table, as long as it matters.

The next operator of a chain has Spark's watermark, too. With the lag of before, no result was behind it. So what was final
by the parameters of before stays final, although those of now would keep it: its result would be late there.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from streamops.kernel.core import State
from streamops.kernel.time import BEFORE_ALL

LAG = "_lag"
"""Name of the table: one row per change of the lag. Every shard has the same rows."""

_SCHEMA = pa.schema([("raised", pa.int64()), ("mark", pa.int64()), ("final", pa.bool_())])
"""By how much the lag was raised; Spark's watermark at that time in microseconds, null before the first step; whether
rows up to it were final by the parameters of before. A table without the last column was written before there was one."""

Tables = Mapping[str, pa.Table]


def note_lag(tables: Tables, raised: int, *, final: bool = True) -> dict[str, pa.Table]:
    """Add a change of the lag to the tables of a state; ``final``: rows up to Spark's watermark were final before it."""
    if not raised:
        return dict(tables)
    before = _complete(tables.get(LAG, _SCHEMA.empty_table()))
    added = pa.table([[raised], [None], [final]], schema=_SCHEMA)
    return {**tables, LAG: pa.concat_tables([before, added]).combine_chunks()}


def _complete(changes: pa.Table) -> pa.Table:
    if "final" in changes.column_names:
        return changes
    return changes.append_column("final", pa.repeat(True, len(changes)))


def without_lag(state: State) -> tuple[State, pa.Table | None]:
    """The state for a core, and the table."""
    if LAG not in state.tables:
        return state, None
    tables = dict(state.tables)
    found = tables.pop(LAG)
    return State(state.watermark, tables, state.segments, state.derived), found


def correct_watermark(
    changes: pa.Table, watermark: int | None, lag: int
) -> tuple[pa.Table | None, int | None, int]:
    """The changes that still matter, the watermark of the operator, and up to where rows are final in any case.

    Parameters
    ----------
    changes : Table
        The changes of the lag.
    watermark : int, optional
        Spark's watermark plus ``lag``.
    lag : int
        The lag of the operator.

    Examples
    --------
    >>> changes = note_lag({}, 30)[LAG]
    >>> changes, watermark, final = correct_watermark(changes, 140, 40)
    >>> watermark, final  # Spark's watermark is 100, and was computed with a lag of 10
    (110, 100)
    >>> correct_watermark(changes, 141, 40) == (None, 141, BEFORE_ALL)
    True
    """
    if watermark is None:  # there was none before the change, either
        return None, None, BEFORE_ALL
    mark = watermark - lag
    changes = _complete(changes)
    marked = changes.set_column(1, "mark", changes.column("mark").fill_null(mark))
    rows = [row for row in marked.to_pylist() if row["mark"] >= mark]
    if not rows:
        return None, watermark, BEFORE_ALL
    raised = sum(row["raised"] for row in rows)
    final = mark if all(row["final"] for row in rows) else BEFORE_ALL
    return pa.Table.from_pylist(rows, _SCHEMA), watermark - raised, final
