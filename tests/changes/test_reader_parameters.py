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
        ("NOT_A_SCHEMA", {"schema": ""}),
        ("NOT_A_SCHEMA", {"schema": StructType([])}),
        ("NOT_A_SCHEMA", {"schema": None}),
        ("NOT_A_NAME", {"key": 3}),
        ("NO_COLUMNS", {"key": []}),
        ("SAME_COLUMN", {"key": ["id", "id"]}),
        ("NOT_A_NAME", {"value": None}),
        ("NOT_A_NAME", {"message_key": 5}),
        ("KEY_CALLED_PAYLOAD", {"key": "payload", "message_key": "key"}),
        ("UNKNOWN_CHOICE", {"sequence": "offset"}),
        ("NO_COLUMNS", {"sequence": []}),
        ("UNKNOWN_CHOICE", {"absent": "skip"}),
        ("UNKNOWN_CHOICE", {"preimages": "keep"}),
        ("UNKNOWN_CHOICE", {"tombstones": "publish"}),
        ("NOT_A_PLACEHOLDER", {"placeholder": ""}),
        ("NOT_A_PLACEHOLDER", {"placeholder": None}),
        ("NOT_A_PLACEHOLDER", {"placeholder": "hex:xyz"}),
        ("TOMBSTONE_WITHOUT_KEY", {"tombstones": "keep"}),
        ("COLUMN_NOT_FOUND", {"schema": StructType().add("number", IntegerType())}),
        ("NAME_TAKEN", {"schema": StructType().add("id", "integer").add("_Sequence", "integer")}),
        ("NAME_TAKEN", {"schema": StructType().add("id", "integer"), "keep": ["ID"]}),
        (
            "KEYS_NOT_TEXT",
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
        ("NO_COLUMNS", {"key": ()}),
        ("NOT_A_NAME", {"key": [None]}),
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
