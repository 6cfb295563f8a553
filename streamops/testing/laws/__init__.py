"""The laws of a core as functions: every core must satisfy all of them.

A *case* is a core, its spec, and a history of micro-batches: tuples of one table per input. A law
takes a case and fails with an ``AssertionError`` that shows the difference::

    @given(case=histories())
    def test_my_core_satisfies_every_law(case): laws.check_laws(case)

For an operator of your own, :func:`check_operator` makes the case, and :func:`histories` draws the
micro-batches.

Watermarks are those that Spark computes from the history. Rows are compared as multisets, and
exactly: draw numbers whose sums are exact, such as multiples of 1/4. Summaries have a case of their
own, :class:`SummaryCase`, with the laws ``laws.SUMMARY``.
"""

from streamops.kernel.calls import explain_calls
from streamops.testing.laws.cases import Arrival, Case, Oracle, invert, to_rows
from streamops.testing.laws.cores import CORE, check_laws
from streamops.testing.laws.operators import check_operator, histories
from streamops.testing.laws.summaries import SUMMARY, SummaryCase

__all__ = [
    "CORE",
    "SUMMARY",
    "Arrival",
    "Case",
    "Oracle",
    "SummaryCase",
    "check_laws",
    "check_operator",
    "histories",
    "invert",
    "to_rows",
]

explain_calls(globals())
