"""Every operator reads and returns large Arrow types where Spark uses them, without Spark."""

from __future__ import annotations

import inspect
from typing import Any

import pyarrow as pa
import pytest

from streamops.kernel.codec import ipc_read
from streamops.kernel.columns import suit, with_large_types
from streamops.spark.clocks import ClockSpec
from streamops.spark.drive import _runner, _runner_with_metrics, resolve, shards_of
from streamops.spark.operator import Operator
from streamops.spark.packing import EMITTED_ARROW, packer, unpacker
from streamops.spark.step import ShardStep
from tests.spark.test_every_operator import CASES, NOT_IN_A_BATCH, Case


def is_plain(case: Case) -> bool:
    """Whether an operator reads the columns of its frames, and has one step."""
    (first, *further) = case.chain
    is_kernel = isinstance(first, Operator) and first.core is not None
    return is_kernel and not further and not isinstance(first.parameters, ClockSpec)


PLAIN = {
    name: case for name, case in CASES.items() if is_plain(case) and name not in NOT_IN_A_BATCH
}


def test_all_types_become_large() -> None:
    inner = pa.struct([("s", pa.string()), ("b", pa.list_(pa.binary())), ("n", pa.int32())])
    map_ = pa.map_(pa.string(), inner)
    rows = [[("k", {"s": "x", "b": [b"y", None], "n": 1})], None]
    table = pa.table({"m": pa.array(rows, map_), "s": ["a", None], "i": [1, 2]})
    found = with_large_types(table)
    assert found.to_pylist() == table.to_pylist()
    texts = str(found.schema).replace("large_string", "").replace("large_binary", "")
    assert "string" not in texts
    assert "binary" not in texts
    assert found.cast(table.schema).equals(table)


@pytest.mark.parametrize("name", PLAIN)
def test_an_operator_in_a_batch(name: str) -> None:
    case, (operator,) = PLAIN[name], PLAIN[name].chain
    spec = resolve(operator, case.schemas, (None,) * len(case.schemas))
    step = ShardStep(name, operator.core, spec, shards_of(operator))
    found = []
    for change in (lambda table: table, with_large_types):
        packs = []
        for side in range(len(case.schemas)):
            rows = change(pa.concat_tables(case.tables(number)[side] for number in range(4)))
            rows = rows.select(spec.inputs[side].schema.names)
            pack = packer(operator.core, spec, side, 1, newest=False)
            packs += [*pack(iter(rows.combine_chunks().to_batches()))]
        found.append(_runner(step)(change(pa.Table.from_batches(packs))))
    plain, large = found
    assert plain.num_rows
    assert large.schema == with_large_types(plain).schema
    assert large.cast(plain.schema).equals(plain)


@pytest.mark.parametrize("runner", [_runner, _runner_with_metrics])
def test_spark_sees_the_argument_of_a_function_of_groups(runner: Any) -> None:
    case = next(iter(PLAIN.values()))
    (operator,) = case.chain
    spec = resolve(operator, case.schemas, (None,) * len(case.schemas))
    function = runner(ShardStep("test", operator.core, spec, 1))
    assert inspect.getfullargspec(function).args == ["table"]


def test_the_results_of_a_step_are_unpacked_from_large_cells() -> None:
    rows = pa.table({"s": ["a", None]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    cell = sink.getvalue().to_pybytes()
    assert ipc_read(cell).equals(rows)
    emitted = pa.table({"emitted": [cell], "metrics": [[1]]}, schema=EMITTED_ARROW)
    large = suit(emitted, pa.large_binary())
    assert large.schema.field("emitted").type == pa.large_binary()
    (batch,) = unpacker(rows.schema)(iter(large.to_batches()))
    assert pa.Table.from_batches([batch]).equals(rows)
    assert suit(emitted, pa.binary()) is emitted
