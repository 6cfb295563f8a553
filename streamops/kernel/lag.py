"""Another lag of an operator after a restart, while Spark's watermark is still that of before.

Spark's watermark lies ``Spec.lag`` behind that of the operator. A query that starts again has the watermark that Spark
computed with the lag of before, until event times have moved it. The state says so in a table, as long as it matters.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from streamops.kernel.core import State

LAG = "_lag"
"""Name of the table: one row per change of the lag. Every shard has the same rows."""

_SCHEMA = pa.schema([("raised", pa.int64()), ("mark", pa.int64())])
"""By how much the lag was raised; Spark's watermark at that time in microseconds, null before the first step."""

Tables = Mapping[str, pa.Table]


def note_lag(tables: Tables, raised: int) -> dict[str, pa.Table]:
    """Add a change of the lag to the tables of a state."""
    if not raised:
        return dict(tables)
    before = tables.get(LAG, _SCHEMA.empty_table())
    added = pa.table([[raised], [None]], schema=_SCHEMA)
    return {**tables, LAG: pa.concat_tables([before, added]).combine_chunks()}


def without_lag(state: State) -> tuple[State, pa.Table | None]:
    """The state for a core, and the table."""
    if LAG not in state.tables:
        return state, None
    tables = dict(state.tables)
    found = tables.pop(LAG)
    return State(state.watermark, tables, state.segments, state.derived), found


def correct_watermark(
    changes: pa.Table, watermark: int | None, lag: int
) -> tuple[pa.Table | None, int | None]:
    """The changes that still matter, and the watermark of the operator.

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
    >>> changes, watermark = correct_watermark(changes, 140, 40)
    >>> watermark  # Spark's watermark is 100, and was computed with a lag of 10
    110
    >>> correct_watermark(changes, 141, 40)
    (None, 141)
    """
    if watermark is None:  # there was none before the change, either
        return None, None
    mark = watermark - lag
    marked = changes.set_column(1, "mark", changes.column("mark").fill_null(mark))
    rows = [row for row in marked.to_pylist() if row["mark"] >= mark]
    if not rows:
        return None, watermark
    raised = sum(row["raised"] for row in rows)
    return pa.Table.from_pylist(rows, _SCHEMA), watermark - raised
