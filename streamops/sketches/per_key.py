"""One function under all operators of sketches: per key, or per key and window.

An operator is a function with the parameters of its kind, those of :class:`PerKey`, and a
docstring; say::

    def distinct(
        column: str, *, p: int = 12, into: str = "distinct", **said: Unpack[PerKey]
    ) -> Transform | RunningTransform:
        \"\"\"How many different values there are, per key, told whenever it changes. ... \"\"\"
        return per_key("sketches.distinct", {into: approx_distinct(column, p=p)}, said)

Its docstring has the card; what is the same for all kinds reads::

    Input        `column`: any type but maps · `by`: key columns of any type but maps (null is a key)
    Output       key columns · `into`: ... · revision: int · with "retract" _change_type: string; with
                 `size` that of ``windows.tumbling``
    Output mode  append
    Watermark    none; with `size` that of ``windows.tumbling``
    State        per shard: a sketch for each key, ``max_keys`` over all shards; never forgotten;
                 with `size` one for each key and window that can still change
    Order        rows may come in any order
    Batch        same rows out, each key once

Its name goes into ``sketches.__all__``, the README's table and the glossary, with the words that are
its own. It has nothing to do with windows, states or Spark; ``testing.replay`` runs it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from streamops import windows
from streamops.kernel.contract import Aggregation
from streamops.kernel.errors import SpecError
from streamops.kernel.time import Duration
from streamops.sketches.core import running
from streamops.sketches.core.running import Changes, WhenFull
from streamops.sketches.running_settings import MOST_KEYS, RunningSettings
from streamops.spark.columns import require_name
from streamops.spark.running import RunningTransform
from streamops.spark.transform import DEFAULT_SHARDS, Options, StateApi, Transform
from streamops.windows import Early, Empty, Stragglers, TooLate

__all__ = ["PerKey", "per_key"]


class PerKey(TypedDict, total=False):
    """What all operators of sketches take beside the parameters of their kind.

    Parameters
    ----------
    by : str or sequence of str
        Key columns. Left out: one group for all rows.
    state_api : "auto", "applyInPandasWithState" or "transformWithStateInPandas"
        "auto" is ``transformWithStateInPandas``: it needs RocksDB and lets operators be chained.
    shards : int
        Pieces that the keys are spread over. Belongs to the checkpoint; raise it where the
        state of a shard passes some megabytes.
    name : str
        Under which the counts appear in the query's ``observedMetrics``.
    changes : "update" or "retract"
        Without `size`: how a value that changed is told. "update": the new one, with `revision` one
        higher, an upsert by the key columns. "retract": the old one is taken back and the new one
        published, as a change stream.
    max_keys : int
        Without `size`: keys that are kept, 1,000,000 if left out. Each shard keeps its part of
        them, ``max_keys / shards`` rounded up, so that one may be full a little before the others.
    when_full : "fail" or "ignore_new"
        Without `size`: what happens to rows of further keys. "fail": the query fails, ``KEYS_FULL``.
        "ignore_new": they are left out, and counted as ``ignored``.
    size : duration
        Values per key and window of this length, instead of running ones.
    hop : duration
        With `size`: from one start of a window to the next. Left out: windows do not overlap.
    time : str
        With `size`: event-time column.
    delay, allowed_lateness, stragglers, too_late, early, empty, empty_for, origin
        With `size`: as in ``windows.tumbling``.
    """

    by: str | Sequence[str]
    state_api: StateApi
    shards: int
    name: str | None
    changes: Changes
    max_keys: int
    when_full: WhenFull
    size: Duration
    hop: Duration
    time: str
    delay: Duration | None
    allowed_lateness: Duration
    stragglers: Stragglers
    too_late: TooLate
    early: Early
    empty: Empty
    empty_for: Duration | None
    origin: Duration | dt.datetime


_RUNNING = {"changes", "max_keys", "when_full"}
_EITHER = {"by", "state_api", "shards", "name"}
_WINDOWS = set(PerKey.__annotations__) - _RUNNING - _EITHER - {"size", "hop"}


def per_key(
    where: str, agg: Mapping[str, Aggregation], said: PerKey
) -> Transform | RunningTransform:
    """The transform that computes these aggregates per key, or per key and window.

    Parameters
    ----------
    where : str
        The operator's public name, such as "sketches.distinct".
    agg : mapping of str to aggregate
        What to compute, under which name.
    said : PerKey
        What the user said besides.

    Raises
    ------
    SpecError
        ``WINDOW_WITHOUT_SIZE``, ``RUNNING_WITH_SIZE`` or ``TIME_REQUIRED``: parameters that do not go
        together; ``NOT_A_NAME``, ``UNKNOWN_CHOICE``, ``MAX_KEYS_OUT_OF_RANGE``, ``NAME_TAKEN`` or
        ``SHARDS_OUT_OF_RANGE``.
    TypeError
        A parameter that there is not.
    """
    unknown = sorted(set(said) - set(PerKey.__annotations__))
    if unknown:
        message = f"{where}() got an unexpected keyword argument {unknown[0]!r}"
        raise TypeError(message)
    for name in agg:
        require_name(name, parameter="into", where=where)
    given: dict[str, Any] = dict(said)
    size, hop = given.pop("size", None), given.pop("hop", None)
    if size is not None:
        return _windowed(where, agg, size, hop, given)
    _refuse_window(where, given if hop is None else given | {"hop": hop})
    settings = RunningSettings.of(
        where,
        agg,
        by=given.get("by", ()),
        changes=given.get("changes", "update"),
        max_keys=given.get("max_keys", MOST_KEYS),
        when_full=given.get("when_full", "fail"),
    )
    shards, api = given.get("shards", DEFAULT_SHARDS), given.get("state_api", "auto")
    options = Options("kernel", api, shards, given.get("name") or where.rpartition(".")[2])
    return RunningTransform(where, settings, options.validated(where), running)


def _windowed(
    where: str, agg: Mapping[str, Aggregation], size: Any, hop: Any, given: dict[str, Any]
) -> Transform:
    wrong = sorted(_RUNNING & given.keys())
    if wrong:
        raise SpecError(
            "RUNNING_WITH_SIZE",
            f"`{wrong[0]}` is about values without a window",
            where=where,
            got=f"{wrong[0]}={given[wrong[0]]!r}, size={size!r}",
            expected="stragglers and early, for what changes in a window; a window forgets its keys",
            fix=f"leave {wrong[0]} out, or size",
        )
    if "time" not in given:
        raise SpecError(
            "TIME_REQUIRED",
            "a window goes by event time",
            where=where,
            got=f"size={size!r} without time",
            expected="time=... beside it",
            fix='name the event-time column: time="ts"',
        )
    if hop is None:
        return windows.tumbling(size, agg=agg, **given)
    return windows.hopping(size, hop, agg=agg, **given)


def _refuse_window(where: str, given: Mapping[str, Any]) -> None:
    wrong = sorted((_WINDOWS | {"hop"}) & given.keys())
    if wrong:
        raise SpecError(
            "WINDOW_WITHOUT_SIZE",
            f"`{wrong[0]}` is about windows, and there is none",
            where=where,
            got=f"{wrong[0]}={given[wrong[0]]!r} without size",
            expected="size=... beside it",
            fix='say how long a window is: size="5 minutes"; or leave it out',
        )
