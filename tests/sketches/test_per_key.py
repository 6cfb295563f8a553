"""What a user says about values per key, and per key and window."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from streamops.kernel.errors import ColumnNotFound, SchemaError, SpecError
from streamops.sketches.per_key import PerKey, per_key
from streamops.spark.operator import Operator
from streamops.testing import at, replay
from tests.sketches.linear import count_items

SCHEMA = pa.schema(
    [("k", pa.string()), ("ts", pa.timestamp("us", "UTC")), ("m", pa.map_(pa.int8(), pa.int8()))]
)


def counted(column: str = "k", *, into: str = "n", **said: Any) -> Any:
    return per_key("sketches.counted", {into: count_items(column)}, said)


def refused(**said: Any) -> SpecError:
    with pytest.raises(SpecError) as caught:
        counted(**said)
    return caught.value


def test_without_a_size_it_is_a_running_value() -> None:
    transform = counted(by="k", max_keys=5, when_full="ignore_new")
    assert isinstance(transform, Operator)
    assert repr(transform) == (
        "sketches.counted(by=('k',), agg=(('n', count_items('k', cells=4)),), changes='update', "
        "max_keys=5, when_full='ignore_new', state_api='auto', shards=8, name='counted')"
    )
    assert counted(by=["k", "ts"], name="x").execution.name == "x"
    spec = counted(by="k", changes="retract").settings.bind(SCHEMA, shards=8)
    assert spec.output.names == ["k", "n", "revision", "_change_type"]
    assert spec.limit == 125_000
    assert (spec.origins, spec.event_time) == ({"k": "k"}, "revision")
    words, state = "count_items('k', cells=4)", "counts list<item: int64>"
    assert spec.identity == {
        "by": [["k", "string"]],
        "agg": [["n", words, state, "linear 1", "cells=4", "k string"]],
        "changes": "retract",
    }


def test_with_a_size_it_is_a_value_per_window() -> None:
    transform = counted("v", by="k", size="10 seconds", time="ts", delay="0 seconds")
    assert isinstance(transform, Operator)
    assert transform.operator == "windows.tumbling"
    hopping = counted(size="10 seconds", hop="5 seconds", time="ts", early="every batch")
    assert hopping.operator == "windows.hopping"
    rows = [{"k": "a", "ts": at(second), "v": second} for second in (1, 2, 12)]
    first, second = replay(transform, [rows])
    assert [row["n"]["estimate"] for row in (*first.rows, *second.rows)] == [2]


def test_every_parameter_of_both_has_a_word() -> None:
    assert {"by", "changes", "max_keys", "when_full", "size", "hop", "time", "stragglers"} <= set(
        PerKey.__annotations__
    )
    with pytest.raises(TypeError, match=r"sketches.counted\(\) got an unexpected .* 'siez'"):
        counted(siez="1 hour")


@pytest.mark.parametrize(
    ("said", "code", "got"),
    [
        ({"hop": "1 minute"}, "WINDOW_WITHOUT_SIZE", "hop='1 minute' without size"),
        ({"stragglers": "update"}, "WINDOW_WITHOUT_SIZE", "stragglers='update' without size"),
        ({"time": "ts"}, "WINDOW_WITHOUT_SIZE", "time='ts' without size"),
        ({"size": "1 minute"}, "TIME_REQUIRED", "size='1 minute' without time"),
        (
            {"size": "1 minute", "time": "ts", "max_keys": 7},
            "RUNNING_WITH_SIZE",
            "max_keys=7, size='1 minute'",
        ),
        ({"changes": "route"}, "UNKNOWN_CHOICE", "changes='route'"),
        ({"when_full": "null"}, "UNKNOWN_CHOICE", "when_full='null'"),
        ({"max_keys": 0}, "MAX_KEYS_OUT_OF_RANGE", "max_keys=0"),
        ({"max_keys": True}, "MAX_KEYS_OUT_OF_RANGE", "max_keys=True"),
        ({"max_keys": 16.0}, "MAX_KEYS_OUT_OF_RANGE", "max_keys=16.0"),
        ({"shards": 0}, "SHARDS_OUT_OF_RANGE", "shards=0"),
        ({"by": 3}, "NOT_A_NAME", "3 of type int"),
        ({"into": None}, "NOT_A_NAME", "None of type NoneType"),
        ({"by": "N"}, "NAME_TAKEN", "by=['N'], agg=['n']"),
        ({"into": "Revision"}, "NAME_TAKEN", "by=[], agg=['Revision']"),
        ({"by": "_change_type"}, "NAME_TAKEN", "by=['_change_type'], agg=['n']"),
    ],
)
def test_what_cannot_be_meant_is_refused(said: Any, code: str, got: str) -> None:
    error = refused(**said)
    assert (error.code, error.got) == (code, got)
    assert error.where == "sketches.counted"


def test_messages_say_what_to_do() -> None:
    assert str(refused(delay="1 minute")) == (
        "[WINDOW_WITHOUT_SIZE] sketches.counted: `delay` is about windows, and there is none\n"
        "  got:       delay='1 minute' without size\n"
        "  expected:  size=... beside it\n"
        '  fix:       say how long a window is: size="5 minutes"; or leave it out'
    )
    assert str(refused(by=["k", "k"])) == (
        "[NAME_TAKEN] sketches.counted: a name stands for two columns of the result: k\n"
        "  got:       by=['k', 'k'], agg=['n']\n"
        "  expected:  names unlike one another and unlike revision, _change_type\n"
        "  fix:       name the result differently (into=...), or rename the key column"
    )


def test_columns_that_are_not_there_or_cannot_be_keys_are_refused() -> None:
    with pytest.raises(ColumnNotFound) as missing:
        counted(by="key").settings.bind(SCHEMA, shards=8)
    assert missing.value.what == "column 'key', given as `by`, does not exist"
    with pytest.raises(SchemaError) as caught:
        counted(by="m").settings.bind(SCHEMA, shards=8)
    assert (caught.value.code, caught.value.where) == (
        "KEY_NOT_HASHABLE",
        "sketches.counted, key 'm'",
    )
    assert caught.value.got == "map<tinyint,tinyint>"
    changes = SCHEMA.append(pa.field("_change_type", pa.string()))
    with pytest.raises(SchemaError) as caught:
        counted(by="k").settings.bind(changes, shards=8)
    assert caught.value.code == "SKETCH_CANNOT_FORGET"
    assert caught.value.where == "sketches.counted"
