"""Sketches as bytes in a column: framed, merged, asked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamops import windows
from streamops.kernel.aggregation import merges_exactly
from streamops.kernel.errors import SketchFormatError
from streamops.kernel.groups import Groups
from streamops.sketches.core.sketch import Framed, Merged, estimate_blobs, read_states
from streamops.windows.core.tables import is_order_sensitive
from tests.sketches.linear import Linear, linear_sketch

LINEAR = Linear("v", 3)
ROWS = pa.table({"v": ["a", "b", None, "a", "c", None]})
GROUPS = Groups(np.array([0, 0, 1, 2, 2, 2]), 4)
BLOBS = Framed(LINEAR).estimate(Framed(LINEAR).update(GROUPS, ROWS))


def totals(array: pa.Array) -> list[int | None]:
    return [None if row is None else row["estimate"] for row in array.to_pylist()]


def test_a_framed_sketch_without_rows_is_not_null() -> None:
    assert BLOBS.null_count == 0
    assert totals(estimate_blobs(LINEAR, LINEAR, BLOBS)) == [2, 0, 2, 0]
    assert (Framed(LINEAR).inputs, Framed(LINEAR).fields) == (("v",), LINEAR.fields)


def test_merging_stored_sketches_gives_the_sketch_of_all_their_rows() -> None:
    merged = Merged("s", LINEAR, Framed(LINEAR), "hour")
    hours = Groups(np.array([1, 1, 1, 0, 2]), 4)
    column = pa.array([*BLOBS.to_pylist(), None], pa.binary())
    states = merged.update(hours, pa.table({"s": pa.chunked_array([column[:2], column[2:]])}))
    whole = LINEAR.update(Groups(np.array([1, 1, 1, 1, 1, 1]), 4), ROWS)
    assert states[0].equals(whole[0])
    assert merged.merge(Groups(np.arange(4), 4), states)[0].equals(states[0])
    assert merged.estimate(states).equals(Framed(LINEAR).estimate(whole))
    assert (merged.inputs, merged.fields, merged.result) == (("s",), LINEAR.fields, pa.binary())
    assert Merged("s", LINEAR, LINEAR, "").result == LINEAR.result
    assert totals(Merged("s", LINEAR, LINEAR, "").estimate(states)) == [0, 4, 0, 0]


def test_framed_and_merged_sketches_declare_whether_merging_is_exact() -> None:
    class Coarse(Linear):
        merges_exactly = False

    for sketch, exactly in ((LINEAR, True), (Coarse("v", 3), False)):
        for summary in (sketch, Framed(sketch), Merged("s", sketch, sketch, "")):
            assert merges_exactly(summary) is exactly
    spec: Any = windows.tumbling(
        "1 hour",
        time="ts",
        agg={"n": linear_sketch("v")},
        stragglers="retract",
        allowed_lateness="1 hour",
    ).parameters.resolve(
        (pa.schema([("ts", pa.timestamp("us", "UTC")), ("v", pa.string())]),),
        carried=(0,),
        shards=1,
    )
    assert not is_order_sensitive(spec)
    assert is_order_sensitive(replace(spec, aggregates=(("n", "", Framed(Coarse("v", 3))),)))


def test_a_null_has_no_estimate() -> None:
    column = pa.array([None, *BLOBS.to_pylist(), None], pa.binary())
    assert read_states(LINEAR, column)[0].equals(read_states(LINEAR, BLOBS)[0])
    assert totals(estimate_blobs(LINEAR, LINEAR, column)) == [None, 2, 0, 2, 0, None]
    nothing = pa.nulls(2, pa.binary())
    assert estimate_blobs(LINEAR, LINEAR, nothing).to_pylist() == [None, None]


def test_a_sketch_with_other_parameters_is_refused_with_its_row() -> None:
    other = Framed(Linear("v", 4))
    blobs = other.estimate(other.update(GROUPS, ROWS))
    column = pa.concat_arrays([BLOBS[:1], blobs])
    with pytest.raises(SketchFormatError) as caught:
        Merged("s", LINEAR, LINEAR, "hour").update(
            Groups(np.zeros(5, np.int64), 1), pa.table({"s": column})
        )
    assert (caught.value.code, caught.value.where) == ("SKETCH_PARAMETERS", "hour, sketch 1")
    assert (caught.value.got, caught.value.expected) == ("cells=4", "cells=3")
