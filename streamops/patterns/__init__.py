"""Patterns in the events of a key: complex event processing.

=================  ==================================================================
``match``          sequences of events that match a pattern, as SQL's ``MATCH_RECOGNIZE``
``count``          rows of a variable of a match
``first``          column of the first row of a variable
``last``           column of the last row of a variable
``sum``            sum of a column over the rows of a variable
``mean``           mean of a column over the rows of a variable
``min``            least value of a column over the rows of a variable
``max``            greatest value of a column over the rows of a variable
``collect_list``   values of a column of the rows of a variable
``classifiers``    the variable of every row
``previous``       in a condition: a value of an earlier row of the key
``initial``        in a condition: a value of the first row of the match
``current``        in a condition: a value of the row itself
=================  ==================================================================
"""

from streamops.kernel.calls import explain_calls
from streamops.patterns.match import (
    classifiers,
    collect_list,
    count,
    current,
    first,
    initial,
    last,
    match,
    max,
    mean,
    min,
    previous,
    sum,
)

__all__ = [
    "classifiers",
    "collect_list",
    "count",
    "current",
    "first",
    "initial",
    "last",
    "match",
    "max",
    "mean",
    "min",
    "previous",
    "sum",
]

explain_calls(globals())
