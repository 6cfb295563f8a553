"""The laws of a core, as functions: whoever writes a core subscribes to all of them.

A *case* is a core, its spec, a history of micro-batches and what is needed to judge it. A law
takes a case and fails with an ``AssertionError`` that says what differs::

    @given(case=histories())
    def test_my_core_keeps_every_law(case): laws.keep(case)

Watermarks are Spark's, computed from the history. Rows are compared as bags, and exactly: let
the histories hold numbers whose sums are exact, such as multiples of 1/4. Summaries have a
smaller case, :class:`Members`, and laws of their own, ``laws.SUMMARY``. A core with two inputs has
a :class:`PairCase`, and keeps ``laws.PAIR``: :func:`keep_pair`.
"""

from streamops.testing.laws.cases import Case, Judged, Oracle, watermarks
from streamops.testing.laws.comparing import rows_of
from streamops.testing.laws.cores import CORE, keep
from streamops.testing.laws.pair_cases import Both, JudgedPair, PairCase, PairOracle, inverse
from streamops.testing.laws.pairs import PAIR, keep_pair
from streamops.testing.laws.summaries import SUMMARY, Members

__all__ = [
    "CORE",
    "PAIR",
    "SUMMARY",
    "Both",
    "Case",
    "Judged",
    "JudgedPair",
    "Members",
    "Oracle",
    "PairCase",
    "PairOracle",
    "inverse",
    "keep",
    "keep_pair",
    "rows_of",
    "watermarks",
]
