"""A fold as an operator: it has no event time and no state, and groups of entities are folded apart."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from streamops import sourcing
from streamops.errors import SchemaError, SpecError
from tests.sourcing.carts import fold_cart
from tests.sourcing.folding import fold_log
from tests.sourcing.test_fold import CART, LOG

FOLD = sourcing.fold(fold_cart, by="cart", state="items map<string,int>", initial={"items": {}})


@pytest.mark.parametrize("option", [{"shards": 2}, {"state_api": "auto"}, {"expected_keys": 5}])
def test_a_fold_has_no_state_and_no_shards(option: dict[str, Any]) -> None:
    assert FOLD.core is None
    assert FOLD.options(name="carts").metrics_name == "carts"
    with pytest.raises(SpecError, match="PARAMETER_WITHOUT_EFFECT"):
        FOLD.options(**option)


def test_groups_of_entities_are_folded_as_the_log_as_a_whole() -> None:
    other = [{**event, "cart": "b", "item": "cup"} for event in CART]
    both = fold_log(FOLD, [row for pair in zip(CART, other, strict=True) for row in pair], LOG)
    assert both == [*fold_log(FOLD, other, LOG), *fold_log(FOLD, CART, LOG)]
    assert [row["version"] for row in both] == [4, 4]


def test_a_version_that_is_no_number_is_refused() -> None:
    at = LOG.get_field_index("version")
    with pytest.raises(SchemaError) as caught:
        fold_log(FOLD, [], LOG.set(at, pa.field("version", pa.string())))
    assert caught.value.code == "COLUMN_TYPE"
