"""States between a change of parameters and the end of its effects, as in :mod:`tests.golden.states`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from streamops import aggregates as agg
from streamops import windows
from streamops.kernel.codec import encode
from streamops.kernel.lag import LAG
from streamops.spark.operator import Operator
from streamops.spark.step import Stored, to_text
from streamops.testing import Replay, at
from tests.golden.states import FOLDER
from tests.laws.test_changed_aggregates_laws import restart, segments_of
from tests.laws.test_migration_laws import migrate

SCHEMA = pa.schema([("k", pa.string()), ("ts", pa.timestamp("us", "UTC")), ("v", pa.int64())])
T: dict[str, Any] = {"time": "ts", "by": "k", "delay": "5 seconds"}
ONE, TWO = {"n": agg.count()}, {"s": agg.sum("v"), "n": agg.count()}
RETRACT: dict[str, Any] = {"stragglers": "retract", **T}
LATER = [(41, "ad"), (38, "c"), (47, "b"), (90, "a"), (150, "a")]
"""Seconds and keys of further rows, one micro-batch each."""


def rows(second: int, keys: str) -> list[dict[str, Any]]:
    return [{"k": key, "ts": at(second), "v": second} for key in keys]


def tumbling(**given: Any) -> Operator:
    return windows.tumbling("10 seconds", **{**RETRACT, "agg": ONE, **given})


def session(**given: Any) -> Operator:
    return windows.session("8 seconds", **{**RETRACT, "agg": ONE, **given})


def started(before: Operator) -> Replay:
    query = Replay(before, SCHEMA, shards=1)
    for second in (3, 12, 31, 40):
        query.run([rows(second, "abc")])
    return query


def changed(before: Operator, after: Operator) -> Replay:
    """After the first micro-batch with other parameters, while Spark's watermark is that of before."""
    query = started(before)
    restart(query, after)
    query.run([rows(33, "ab")])
    return query


def migrated(before: Operator, after: Operator) -> Replay:
    query, new = started(before), Replay(after, SCHEMA, shards=1)
    migrate(query, new, {})
    return new


def unmerged() -> Replay:
    plain = windows.hopping("20 seconds", "5 seconds", agg=ONE, **T)
    with segments_of(2):
        return migrated(plain, plain)


def without_final() -> Replay:
    """As it was before rows up to a watermark were noted as final."""
    query = changed(tumbling(allowed_lateness="10 seconds"), tumbling(allowed_lateness="1 minute"))
    (stage,) = query._stages
    stored = Stored(*stage.stored[0])
    tables = dict(stage.run_step.decode(stored, None).tables)
    tables[LAG] = tables[LAG].select(["raised", "mark"])
    blob = to_text(encode(*stage.run_step.header, tables))
    stage.stored[0] = Stored(*stored.row[:4], blob).row
    return query


STATES: dict[str, tuple[Callable[[], Replay], set[str]]] = {
    "windows.grid-v1-lag": (without_final, {"_lag", "_closed"}),
    "windows.grid-v1-changed": (
        lambda: changed(
            tumbling(allowed_lateness="10 seconds"), tumbling(allowed_lateness="1 minute", agg=TWO)
        ),
        {"_lag", "_closed", "agg.0.unknown"},
    ),
    "windows.session-v1-changed": (
        lambda: changed(
            session(allowed_lateness="10 seconds"), session(allowed_lateness="1 minute", agg=TWO)
        ),
        {"_lag", "_closed", "agg.0.unknown"},
    ),
    "windows.grid-v1-turned": (
        lambda: migrated(
            tumbling(allowed_lateness="10 seconds", early="every batch"),
            tumbling(allowed_lateness="10 seconds"),
        ),
        {"_turned"},
    ),
    "windows.grid-v1-unmerged": (unmerged, {"_unmerged"}),
}
"""The state, and the tables and columns that only such a state has."""


def path_of(name: str) -> Path:
    return FOLDER / f"{name}.bin"


def files() -> dict[Path, bytes]:
    """The stored states."""
    return {
        path_of(name): Stored(*build()._stages[0].stored[0]).frame
        for name, (build, _) in STATES.items()
    }
