"""The operator and the frame that a function of ``state`` is called with."""

from __future__ import annotations

from streamops.spark.columns import require_frame
from streamops.spark.drive import Query, resolve_query
from streamops.spark.operator import Operator
from streamops.state import conditions


def resolve(operator: object, frame: object) -> Query:
    """The operator over its frame.

    Raises
    ------
    SpecError
        ``PARAMETER_TYPE``, ``NOT_A_FRAME``, and those of the operator.
    """
    if not isinstance(operator, Operator) or operator.core is None:
        raise conditions.NOT_AN_OPERATOR.error(got=f"a value of type {type(operator).__name__}")
    return resolve_query(operator, require_frame(frame, "the frame"))
