"""Compare a stored state with the plan of a query in the driver, before the first task reads it.

The plan has, below each stateful operator, an alias with what its state is checked against. So a plan can
be compared with a checkpoint without the objects that it was built from, also by a Connect client.
"""

from __future__ import annotations

import json
from dataclasses import astuple
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from streamops.kernel.codec import StoredFrame, read_stored, require_same
from streamops.kernel.core import StateFormat
from streamops.kernel.errors import located
from streamops.spark.metadata import describe
from streamops.spark.step import ShardStep, to_frame

VARIABLE = "stored"
"""Name of the state variable of ``transformWithStateInPandas``."""

_MARK = "streamops state "


def declare_state(frame: DataFrame, step: ShardStep[Any]) -> DataFrame:
    """Write what the state of an operator is checked against into the plan."""
    layout, identity, shards = step.header
    header = [step.where, shards, identity, *astuple(layout)]
    return describe(frame, _MARK + json.dumps(header))


def compare(session: SparkSession, plan: str, path: str, *, batch: int | None = None) -> None:
    """Compare the operators in a plan with those of a checkpoint, in the order of Spark's numbers.

    If the operators are not the same ones, nothing is compared: Spark refuses most of such plans.
    """
    declared = _declared(plan)
    if not declared:
        return
    stored = [found for found in _stored(session, path, batch) if found is not None]
    if [header[3] for header in declared] != [found.layout for found in stored]:
        return
    for (where, shards, identity, *layout), found in zip(declared, stored, strict=True):
        with located(where):
            require_same(found, StateFormat(*layout), identity, shards)


def load_state(spark: SparkSession, path: str, operator: int, batch: int | None) -> DataFrame:
    """The rows of the state of an operator, behind either state API."""
    reader = spark.read.format("statestore").option("operatorId", operator)
    if batch is not None:
        reader = reader.option("batchId", batch)
    try:
        frame = reader.load(path)
        _ = frame.schema  # Connect loads nothing before
        return frame
    except Exception as error:
        if "stateVarName" not in str(error):
            raise
        return reader.option("stateVarName", VARIABLE).load(path)


def _declared(plan: str) -> list[Any]:
    """What the operators of a plan declare, in the order in which Spark numbers them."""
    found = []
    for line in plan.splitlines():
        _, is_there, text = line.partition(f"SubqueryAlias `{_MARK}")
        if is_there:
            found.append(json.loads(text[:-1].replace("``", "`")))
    return found


def _stored(session: SparkSession, path: str, batch: int | None) -> list[StoredFrame | None]:
    """The frame of one shard of each operator; None if Spark wrote the state, or there is none."""
    known = session.read.format("state-metadata").load(path).select("operatorId").collect()
    found: list[StoredFrame | None] = []
    for number in sorted({row[0] for row in known}):
        rows = load_state(session, path, number, batch)
        types: Any = rows.schema["value"].dataType
        names = types["groupState"].dataType.names if "groupState" in types.names else types.names
        if "blob" not in names:
            found.append(None)
            continue
        row = rows.select("value.groupState.blob" if "groupState" in types.names else "value.blob")
        first = row.first()
        found.append(None if first is None else read_stored(to_frame(first[0])))
    return found
