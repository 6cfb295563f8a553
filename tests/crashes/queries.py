"""Queries with many operators: one checkpoint, so that one restart covers all of them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pyspark.sql import DataFrame, SparkSession

from streamops.environment.settings import PARTITIONS, PROVIDER, ROCKSDB
from streamops.kernel import segments
from streamops.testing import micro_batches
from tests.crashes.cases import CRASHED, LAST, WITHOUT_ROWS, shows_a_crash
from tests.settings import configured
from tests.spark.test_every_operator import Case, tag

STORES = {
    "rocksdb": ROCKSDB,
    "hdfs": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
}
NATIVE = ("tumbling", "hopping", "session")
TRANSFORM, APPLY = "transformWithStateInPandas", "applyInPandasWithState"


@dataclass(frozen=True)
class Query:
    """A query with these operators, on a state store.

    Parameters
    ----------
    store : str
        One of ``STORES``.
    names : tuple of str
        The operators, by their names in ``CRASHED``.
    engine : str
        The state API that runs them, or "native": Spark's own windows.
    key : str, optional
        The results are changes of a table with this key, which the targets apply.
    is_tagged : bool
        Whether a row of the targets is the name of an operator and its row as JSON. Otherwise the results of
        the one operator are written as they are.
    numbers : tuple of int
        The micro-batches in which the query crashes at every stage.
    some : tuple of int
        Those in which it crashes at some stages.
    has_side_output : bool
        Whether the rows are also divided into results, for two targets, and side output, for a third one.
    has_segments : bool
        Whether all rows of the state are in segments, which otherwise only a large state has.
    """

    store: str
    names: tuple[str, ...]
    engine: str = TRANSFORM
    key: str | None = None
    is_tagged: bool = True
    numbers: tuple[int, ...] = (LAST,)
    some: tuple[int, ...] = ()
    has_side_output: bool = False
    has_segments: bool = False

    def __str__(self) -> str:
        names = self.names[0] if len(self.names) == 1 else f"{self.names[0]} to {self.names[-1]}"
        engine = {TRANSFORM: "", APPLY: "", "native": "Spark's own "}[self.engine]
        return f"{self.store}: {engine}{names}{self._form}"

    @property
    def operators(self) -> dict[str, str]:
        """What a point is counted for, by the name of the case."""
        suffix = " (native)" if self.engine == "native" else self._form
        return {name: f"{name}{suffix}" for name in self.names}

    def affected(self, number: int) -> list[str]:
        """The operators that have something to lose in a micro-batch, as in `operators`."""
        names = self.names
        return [of for name, of in self.operators.items() if shows_a_crash(names, name, number)]

    @property
    def _form(self) -> str:
        if self.has_segments:
            return " (segments)"
        if self.is_tagged:
            return ""
        return " (changes of a multiset)" if self.key is None else " (changes by key)"

    def write_inputs(self, spark: SparkSession, folder: Path) -> None:
        """Write all micro-batches to files."""
        for name in self.names:
            case = CRASHED[name]
            for side in range(len(case.schemas)):
                tables = [case.tables(number)[side] for number in range(len(case.batches))]
                _open(spark, case, folder / name, side, tables)

    def frame(self, spark: SparkSession, folder: Path) -> DataFrame:
        """The results of all operators, over the files."""
        limit = 0 if self.has_segments else segments.LIMIT
        with patch.object(segments, "LIMIT", limit):
            return self._frame(spark, folder)

    def _frame(self, spark: SparkSession, folder: Path) -> DataFrame:
        frames = {}
        for name in self.names:
            case = CRASHED[name]
            inputs = [_open(spark, case, folder / name, side) for side in range(len(case.schemas))]
            result = inputs[0]
            for position, operator in enumerate(case.chain):
                options: dict[str, Any] = {"name": f"{name}_{position}", "shards": 2}
                options |= self._engine(case, position)
                operator = operator.options(**options)
                if len(inputs) > 1:
                    operator = replace(operator, right=inputs[1])
                result = result.transform(operator)
            frames[name] = result
        return tag(frames) if self.is_tagged else frames[self.names[0]]

    def _engine(self, case: Case, position: int) -> dict[str, str]:
        # A query has applyInPandasWithState once. Behind it, Spark's own windows may follow a clock.
        if self.engine == "native" or (self.engine == APPLY and position > 0):
            return {"engine": "native"}
        return {"state_api": self.engine}


def _open(spark: SparkSession, case: Case, folder: Path, side: int, tables: Any = ()) -> DataFrame:
    return micro_batches(
        spark,
        tables,
        schema=case.schemas[side],
        directory=folder / str(side),
        source="files",
    )


def _can_apply(case: Case) -> bool:
    """Whether ``applyInPandasWithState`` can run it: in one step, or before Spark's own windows."""
    first, *rest = case.chain
    is_clock = first.name == "time.producers"
    return first.follow_up is None and (is_clock or not rest)


def _has_time(case: Case) -> bool:
    return any(time is not None for of in case.chain for time in of.parameters.times)


_TIMED = tuple(name for name, case in CRASHED.items() if _has_time(case))
_BY_ARRIVAL = tuple(name for name in CRASHED if name not in _TIMED)
_AT_THE_END = ("calendar",)
"""A day has its results in the last micro-batch only."""

_EARLIER = tuple(name for name in _TIMED if name not in _AT_THE_END)
GROUPS = (
    # With event time, there are no results in the first micro-batch, and no state before it.
    Query("rocksdb", _EARLIER[::3], numbers=(1,), some=(LAST,)),
    Query("rocksdb", _EARLIER[1::3], numbers=(LAST,), some=(1,)),
    Query("rocksdb", _EARLIER[2::3] + _AT_THE_END, numbers=(WITHOUT_ROWS,), some=(LAST,)),
    Query("rocksdb", _BY_ARRIVAL[::2], numbers=(0,), some=(LAST,)),
    Query("rocksdb", _BY_ARRIVAL[1::2], numbers=(LAST,), some=(0,), has_side_output=True),
)
"""``transformWithStateInPandas`` needs RocksDB. A query may have it many times, and each time starts a
Python process when the query starts, which takes seconds.
"""

CHANGES = (
    Query("rocksdb", ("running",), key="k", is_tagged=False),
    Query("rocksdb", ("tables",), is_tagged=False),
)
"""Changes of a table with a key, and of a multiset."""

SEGMENTED = Query(
    "rocksdb", ("tumbling", "hopping", "seen"), numbers=(1, LAST, WITHOUT_ROWS), has_segments=True
)
"""Segments that were written, and those that were removed: their windows closed, or a filter is written again."""

ON_ROCKSDB = (
    *GROUPS,
    *CHANGES,
    SEGMENTED,
    Query("rocksdb", NATIVE, "native", numbers=(1, LAST), has_side_output=True),
)
"""The queries that are rolled back to every stage."""

NATIVES = Query("rocksdb", NATIVE, "native")
ON_HEAP = Query("hdfs", ("interval",), APPLY)
_AT_LAST = [
    replace(query, numbers=(0, LAST) if 0 in query.numbers else (LAST,), some=())
    for query in GROUPS
]
_ANY = (*_AT_LAST[3:], *CHANGES, NATIVES, ON_HEAP)
ON_SERVERS = {
    "postgres": (*_AT_LAST[:3], *_ANY),
    "kafka": _ANY,
    "side_outputs": (NATIVES, ON_HEAP),
}
"""The queries that crash at every step of a sink, by the names of ``SERVERS``.

For Kafka, a row of any operator is a name and a text: a part of them is enough.
"""

ON_HDFS = (
    *(
        Query(
            "hdfs",
            (name,),
            APPLY,
            numbers=(),
            some=(WITHOUT_ROWS if name in _AT_THE_END else LAST,),
        )
        for name, case in CRASHED.items()
        if _can_apply(case)
    ),
    Query("hdfs", NATIVE, "native", numbers=(LAST, WITHOUT_ROWS), has_side_output=True),
)
"""A query has ``applyInPandasWithState`` once. They take time, so they have some of the stages."""


def settings(spark: SparkSession, store: str) -> AbstractContextManager[SparkSession]:
    """A session with this state store. One partition is enough, and takes half the time."""
    return configured(spark, {PARTITIONS: "1", PROVIDER: STORES[store]})


def run(
    frame: DataFrame,
    deliver: Callable[[DataFrame, int], None],
    checkpoint: Path,
    seconds: int = 300,
) -> None:
    """Run a query until its input is used up, or until it fails."""
    writer = frame.writeStream.foreachBatch(deliver).outputMode("append")
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    try:
        if not query.awaitTermination(seconds):
            message = f"the query did not end within {seconds} seconds"
            raise TimeoutError(message)
    finally:
        query.stop()
