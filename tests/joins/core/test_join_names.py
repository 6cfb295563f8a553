"""Names of joined columns."""

from __future__ import annotations

import pyarrow as pa
import pytest

from streamops.joins.core.join_spec import JoinedNames, join_names, refuse_reserved
from streamops.kernel.errors import SchemaError


def columns(*names: str) -> pa.Schema:
    return pa.schema([(name, pa.int64()) for name in names])


def joined(left: pa.Schema, right: pa.Schema, **by: str) -> JoinedNames:
    return join_names(left, right, tuple(by.items()))


def test_right_keys_are_omitted_and_new_columns_keep_their_names() -> None:
    names = joined(columns("k", "x"), columns("id", "y"), k="id")
    assert names.schema.names == ["k", "x", "y"]
    assert names.right == (("y", "y"),)


def test_a_taken_name_gets_a_suffix_in_any_case() -> None:
    names = joined(columns("k", "Ts"), columns("k", "tS"), k="k")
    assert names.right == (("tS", "tS_right"),)


def test_types_and_metadata_are_preserved() -> None:
    marked = pa.field("v", pa.string(), metadata={"a": "b"})
    names = joined(columns("k", "v"), pa.schema([("k", pa.int64()), marked]), k="k")
    assert names.schema.field("v_right").equals(marked.with_name("v_right"), check_metadata=True)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (["k", "v", "v_right"], ["k", "v"]),
        (["k", "v"], ["k", "v", "v_right"]),
        (["k", "v"], ["k", "V_RIGHT", "v"]),
    ],
)
def test_a_name_whose_suffixed_form_is_taken_is_refused(left: list[str], right: list[str]) -> None:
    with pytest.raises(SchemaError) as caught:
        joined(columns(*left), columns(*right), k="k")
    assert caught.value.code == "NAME_TAKEN"
    assert "withColumnRenamed('v'" in caught.value.fix


def test_a_column_with_the_name_of_an_added_one_is_refused() -> None:
    with pytest.raises(SchemaError) as caught:
        refuse_reserved(["k", "Status"], ["status"])
    assert caught.value.code == "NAME_TAKEN"
    refuse_reserved(["k", "state"], ["status"])
