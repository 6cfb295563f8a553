"""Choose Spark's state API for an operator, and refuse chains of operators that Spark would refuse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession

from streamops.changelog.chains import GROUPS, follow, follow_both, require_transform
from streamops.environment.settings import PROVIDER, ROCKSDB, effective
from streamops.kernel.errors import Condition, RequirementError, SpecError, located
from streamops.kernel.versions import has_transform, state_messages_problem, too_old
from streamops.spark import conditions
from streamops.spark.checks import columns_of
from streamops.spark.definition import StateApi
from streamops.spark.metadata import has_node, has_streaming_aggregation

_TRANSFORM: StateApi = "transformWithStateInPandas"
_SPLIT = "one stateful operator per query, with a table between two of them"


class Choice(NamedTuple):
    """The state API of an operator.

    Parameters
    ----------
    api : "applyInPandasWithState" or "transformWithStateInPandas"
    reason : str
        Why, for the description of the plan.
    """

    api: StateApi
    reason: str


def choose_state_api(
    frames: Sequence[DataFrame],
    wanted: StateApi,
    *,
    sides: Sequence[str] | None = None,
    required: str | None = None,
) -> Choice:
    """Choose the state API of an operator, if it may follow the operators before it.

    "auto" is ``transformWithStateInPandas`` where its requirements are met, else
    ``applyInPandasWithState``.

    Parameters
    ----------
    frames : sequence of DataFrame
        The inputs, streaming.
    wanted : StateApi
        The option of the user.
    sides : sequence of str, optional
        Where each input is, for errors.
    required : str, optional
        Why the operator needs ``transformWithStateInPandas``; None if it runs behind both.

    Raises
    ------
    SpecError
        ``STATE_API_NOT_CHAINABLE``: see :func:`refuse_unchainable`; or both inputs come from an
        operator that a query may have only once. ``PARAMETERS_CONTRADICT``: the operator needs the other
        state API.
    RequirementError
        ``ROCKSDB_REQUIRED``, ``PACKAGE_MISSING`` or ``VERSION_NOT_SUPPORTED``, if the state API was selected or is required.
    """
    require_transform(required, wanted)
    session = frames[0].sparkSession
    problem = _problem(session, required=required)
    if wanted == "auto" and required is None and problem is not None:
        choice = Choice(GROUPS, f"state_api='auto', and {problem.what}")
    elif wanted == "auto":
        reason = required or "the session has RocksDB and protobuf"
        choice = Choice(_TRANSFORM, f"state_api='auto', and {reason}")
    else:
        choice = Choice(wanted, f"state_api={wanted!r}")
    _refuse(follow_both([*map(columns_of, frames)]), frames[0])
    for frame, side in zip(frames, sides or ("",) * len(frames), strict=True):
        with located(side):
            refuse_unchainable(frame, choice.api)
    if choice.api == _TRANSFORM and problem is not None:
        raise problem
    return choice


def refuse_unchainable(frame: DataFrame, following: str) -> None:
    """Refuse a chain of operators that Spark would refuse when the query starts.

    Parameters
    ----------
    frame : DataFrame
        A streaming frame.
    following : str
        How the next operator runs: ``"native"``, or a state API.

    Raises
    ------
    SpecError
        ``STATE_API_NOT_CHAINABLE``: the frame comes from an operator that no other may follow, or
        ``applyInPandasWithState`` would follow an aggregation, or itself.
    """
    found = follow(
        columns_of(frame),
        following,
        has_groups=lambda: has_node(frame, "FlatMapGroupsInPandasWithState"),
        aggregates=lambda: has_streaming_aggregation(frame),
    )
    _refuse(found, frame)


def _refuse(found: tuple[Condition[SpecError], str] | None, frame: DataFrame) -> None:
    if found is None:
        return
    (condition, got), problem = found, _problem(frame.sparkSession)
    if problem is None:
        raise condition.error(got=got)
    got += f", which state_api='auto' selects because {problem.what}"
    raise condition.error(got=got).replace(fix=problem.fix)


def _problem(session: SparkSession, *, required: str | None = None) -> RequirementError | None:
    """Why ``transformWithStateInPandas`` does not run in this session; None if it does."""
    provider = effective(session, PROVIDER) or ""
    expected = f"{_TRANSFORM} requires {{}}" + ("" if required is None else f": {required}")
    if not has_transform():
        return too_old(
            _TRANSFORM if required is None else f"{_TRANSFORM}: {required}", "4.0", _SPLIT
        )
    if "RocksDB" not in provider:  # platforms have class names of their own
        return conditions.ROCKSDB_REQUIRED.error(
            provider=PROVIDER,
            rocksdb=ROCKSDB,
            expected=expected.format(ROCKSDB),
            got=f"{PROVIDER}={provider}",
        )
    messages = state_messages_problem()
    if messages is not None:
        why, requirement = messages
        return conditions.PROTOBUF_UNFIT.error(
            requirement=requirement, expected=expected.format(requirement), got=why
        )
    return None
