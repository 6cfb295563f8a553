"""Parameters of the readers, refused before there is a frame."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.types import DateType, IntegerType, MapType, StringType, StructField, StructType

from streamops import changes
from streamops.kernel.errors import StreamopsError

ID = StructField("id", IntegerType())


@pytest.mark.parametrize(
    ("code", "changed"),
    [
        ("INVALID_SCHEMA", {"schema": ""}),
        ("INVALID_SCHEMA", {"schema": StructType([])}),
        ("INVALID_SCHEMA", {"schema": None}),
        ("PARAMETER_TYPE", {"key": 3}),
        ("PARAMETER_MISSING", {"key": []}),
        ("DUPLICATE_COLUMN", {"key": ["id", "id"]}),
        ("PARAMETER_TYPE", {"value": None}),
        ("PARAMETER_TYPE", {"message_key": 5}),
        ("NAME_TAKEN", {"key": "payload", "message_key": "key"}),
        ("UNKNOWN_CHOICE", {"sequence": "offset"}),
        ("PARAMETER_MISSING", {"sequence": []}),
        ("UNKNOWN_CHOICE", {"absent": "skip"}),
        ("UNKNOWN_CHOICE", {"preimages": "keep"}),
        ("UNKNOWN_CHOICE", {"tombstones": "publish"}),
        ("INVALID_PARAMETER", {"placeholder": ""}),
        ("INVALID_PARAMETER", {"placeholder": None}),
        ("INVALID_PARAMETER", {"placeholder": "hex:xyz"}),
        ("PARAMETER_MISSING", {"tombstones": "keep"}),
        ("COLUMN_NOT_FOUND", {"schema": StructType().add("number", IntegerType())}),
        ("NAME_TAKEN", {"schema": StructType().add("id", "integer").add("_Sequence", "integer")}),
        ("NAME_TAKEN", {"schema": StructType().add("id", "integer"), "keep": ["ID"]}),
        (
            "TYPE_UNSUPPORTED",
            {"schema": StructType([ID, StructField("m", MapType(DateType(), StringType()))])},
        ),
    ],
    ids=repr,
)
def test_wrong_parameters_of_from_debezium_are_refused(code: str, changed: dict[str, Any]) -> None:
    given = {"schema": "id int, payload int", "key": "id", **changed}
    with pytest.raises(StreamopsError) as caught:
        changes.from_debezium(given.pop("schema"), **given)
    assert caught.value.code == code
    assert caught.value.where == "changes.from_debezium"


@pytest.mark.parametrize(
    ("code", "changed"),
    [
        ("PARAMETER_MISSING", {"key": ()}),
        ("PARAMETER_TYPE", {"key": [None]}),
        ("UNKNOWN_CHOICE", {"key": "id", "preimages": "keep"}),
    ],
    ids=repr,
)
def test_wrong_parameters_of_from_delta_are_refused(code: str, changed: dict[str, Any]) -> None:
    with pytest.raises(StreamopsError) as caught:
        changes.from_delta(**changed)
    assert caught.value.code == code


def test_the_repr_shows_the_parameters() -> None:
    row = StructType().add("id", IntegerType())
    assert "schema='id:int', key=('id',)" in repr(changes.from_debezium(row, key="id"))
    assert "schema='id int', key=('id',)" in repr(changes.from_debezium("id int", key="id"))
