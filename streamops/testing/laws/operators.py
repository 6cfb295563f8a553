"""The laws of an operator with the parameters of a user, over drawn micro-batches."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from streamops.kernel.errors import located
from streamops.kernel.parameters import require_package
from streamops.kernel.time import Duration, parse_duration
from streamops.spark.drive import resolve
from streamops.spark.operator import Operator
from streamops.testing import conditions
from streamops.testing.batches import (
    START,
    Schemas,
    expand,
    infer_schemas,
    remedies_for_a_script,
    to_tables,
)
from streamops.testing.laws.cases import Arrival, Case, Oracle, Row
from streamops.testing.laws.cores import (
    CORE,
    check_laws,
    order_within_a_batch_is_irrelevant,
)

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

__tracebackhide__ = True

_AS_THEY_ARRIVE = {order_within_a_batch_is_irrelevant}


@remedies_for_a_script()
def check_operator(
    operator: Operator,
    batches: Sequence[Any],
    *,
    schema: Schemas = None,
    key: Sequence[str] | None = None,
    oracle: Callable[[], Oracle] | None = None,
    accepted: Callable[[Sequence[Arrival]], Sequence[Row]] | None = None,
    laws: Sequence[Callable[[Any], None]] | None = None,
    seed: int = 0,
) -> None:
    """Check the laws of a core for an operator, over one history of micro-batches.

    The stream equals the batch for every division into micro-batches; the order within a micro-batch, the
    number of tasks and shards, and restarts change nothing; and so on, see ``laws.CORE``.

    Parameters
    ----------
    operator : Operator
        Such as ``process.per_key(...)`` or ``process.per_shard(...)``.
    batches : sequence of Table, pandas DataFrame, or list of dict
        The micro-batches, as in :func:`streamops.testing.replay`.
    schema : Schema, or pair of Schema, optional
        The columns, as in :func:`streamops.testing.replay`.
    key : sequence of str, optional
        Columns of the output that identify a result, if it can be revised. By default the output is a
        multiset.
    oracle : callable, optional
        Creates an oracle, see :class:`Case`.
    accepted : callable, optional
        The batch result over the rows that are not late, see :class:`Case`.
    laws : sequence of callable, optional
        By default all of ``laws.CORE``. Without event time, rows are processed as they arrive, and the
        order within a micro-batch may have an effect: this law is left out.
    seed : int
        For the divisions, orders and shards that the laws choose.

    Raises
    ------
    AssertionError
        A law is violated. A note of the error names it.

    Examples
    --------
    >>> from streamops import process
    >>> def count(key, rows, state):
    ...     for row in rows:
    ...         state.n += 1
    ...         yield (state.n,)
    >>> operator = process.per_key(
    ...     count, by="k", state="n int", initial={"n": 0}, output="n int", time="ts", delay="1 second"
    ... )
    >>> from streamops.testing import at
    >>> check_operator(operator, [[{"k": "a", "ts": at(3)}], [{"k": "a", "ts": at(1)}]])
    """
    (single,) = _require_single(operator)
    schemas = infer_schemas(single, batches, schema)
    assert single.core is not None
    spec = resolve(single.options(shards=1), schemas, (None,) * len(schemas))
    has_time = any(input_.time is not None for input_ in spec.inputs)
    tables = [to_tables(batch, schemas) for batch in batches]
    case = Case(
        core=single.core,
        spec=spec,
        batches=tuple(
            tuple(t.select(i.schema.names) for t, i in zip(batch, spec.inputs, strict=True))
            for batch in tables
        )
        or (tuple(input_.schema.empty_table() for input_ in spec.inputs),),
        oracle=oracle,
        accepted=accepted,
        key=None if key is None else tuple(key),
        seed=seed,
    )
    left_out = set() if has_time else _AS_THEY_ARRIVE
    check_laws(case, [law for law in CORE if law not in left_out] if laws is None else laws)


def _require_single(operator: Operator) -> list[Operator]:
    operators = expand(operator)
    if len(operators) > 1:
        raise conditions.NOT_ONE_OPERATOR.error(got=repr(operator))
    return operators


def histories(
    values: Mapping[str, SearchStrategy[Any]],
    *,
    time: str | None = None,
    pace: Duration = "10 seconds",
    most_batches: int = 5,
    most_rows: int = 5,
) -> SearchStrategy[list[list[dict[str, Any]]]]:
    """Return a strategy of Hypothesis for micro-batches: lists of rows, which are dicts.

    Parameters
    ----------
    values : mapping of str to strategy
        A strategy for the values of each column except `time`. Draw few different keys.
    time : str, optional
        Event-time column. Each micro-batch is one `pace` later than the one before; its rows are up to
        three paces older, often equally old, and sometimes on a border between two paces.
    pace : duration
        Choose it similar to the durations of the operator.
    most_batches, most_rows : int
        Maximum number of micro-batches, and of rows in each.

    Returns
    -------
    SearchStrategy
        Shrinks to few micro-batches with few rows.

    Examples
    --------
    >>> from hypothesis import given, strategies as st
    >>> @given(batches=histories({"k": st.sampled_from("ab"), "v": st.integers(0, 3)}, time="ts"))
    ... def test_my_function(batches):
    ...     check_operator(operator, batches, schema=SCHEMA)
    """
    with located("laws.histories"):
        require_package("hypothesis", package="hypothesis", extra="testing")
        from hypothesis import strategies as st

        step = dt.timedelta(microseconds=parse_duration(pace, parameter="pace", minimum=1))
    columns = dict(values)
    if time is not None:
        nudges = [
            dt.timedelta(0),
            dt.timedelta(microseconds=1),
            dt.timedelta(microseconds=-1),
            step / 2,
        ]
        paces = st.sampled_from([0, 0, -1, 1, -2, -3])
        columns[time] = st.tuples(paces, st.sampled_from(nudges))
    row = st.fixed_dictionaries(columns)
    drawn = st.lists(st.lists(row, max_size=most_rows), min_size=1, max_size=most_batches)

    @st.composite
    def with_times(draw: st.DrawFn) -> list[list[dict[str, Any]]]:
        batches = draw(drawn)
        if time is None:
            return batches
        return [
            [{**r, time: START + (number + r[time][0]) * step + r[time][1]} for r in rows]
            for number, rows in enumerate(batches)
        ]

    return with_times()
