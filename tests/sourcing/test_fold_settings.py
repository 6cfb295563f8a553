"""A fold as an operator of the kernel: it has no event time and no state, and runs in one step."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from streamops import sourcing
from streamops.errors import SchemaError
from streamops.kernel.core import State
from streamops.sourcing.core.fold import FoldCore
from tests.sourcing.carts import fold_cart
from tests.sourcing.test_fold import CART, LOG


def spec_of(schema: pa.Schema = LOG) -> Any:
    operator = sourcing.fold(
        fold_cart, by="cart", state="items map<string,int>", initial={"items": {}}
    )
    return operator.parameters.resolve((schema,), carried=(None,), shards=1)


def test_a_fold_has_no_time_no_watermark_and_no_state() -> None:
    spec = spec_of()
    assert (spec.times, spec.delays) == ((None,), (None,))
    assert not spec.inputs[0].accepts_revisions
    assert (spec.identity, spec.origins) == ({}, {"cart": (0, "cart")})
    assert [of.by for of in spec.inputs] == [("cart",)]
    assert spec.reads == (("cart", "version"),)
    assert FoldCore().layout(spec) == {}


def test_a_step_folds_the_log_as_a_whole() -> None:
    spec = spec_of()
    rows = FoldCore().pack(spec, pa.Table.from_pylist(CART, LOG))
    step = FoldCore().step(spec, State.empty({}), [rows], None)
    assert step.output.equals(FoldCore().run(spec, [rows]).rows)
    assert step.output.column("version").to_pylist() == [4]
    assert len(step.late) == 0
    assert FoldCore().finish(spec, step.state).num_rows == 0


def test_a_version_that_is_no_number_is_refused() -> None:
    at = LOG.get_field_index("version")
    with pytest.raises(SchemaError) as caught:
        spec_of(LOG.set(at, pa.field("version", pa.string())))
    assert caught.value.code == "COLUMN_TYPE"
