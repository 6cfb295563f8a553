"""Whatever is passed to an operator or a sink is accepted, or refused with a code."""

from __future__ import annotations

import ast
import datetime as dt
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from streamops import aggregates as agg
from streamops import windows
from streamops.errors import StreamopsError
from streamops.testing import Replay, replay
from tests.spark.chain_operators import outcome
from tests.spark.test_repr import CALLS, NAMES, called, made

ODD: Mapping[str, Callable[[], Any]] = {
    "None": lambda: None,
    "a pandas frame": lambda: pd.DataFrame({"a": [1]}),
    "a table": lambda: pa.table({"a": [1]}),
    "a path": lambda: Path("x"),
    "a pair": lambda: ("a", "b"),
    "a pair of one name": lambda: ["a", "a"],
    "a generator": lambda: (name for name in ["a"]),
    "true": lambda: True,
    "an integer of NumPy": lambda: np.int64(5),
    "a float of NumPy": lambda: np.float64(0.5),
    "a text of NumPy": lambda: np.str_("k"),
    "an array": lambda: np.array(["a", "b"]),
    "a duration": lambda: dt.timedelta(seconds=5),
    "a duration of NumPy": lambda: np.timedelta64(5, "s"),
    "a duration of pandas": lambda: pd.Timedelta(seconds=5),
    "no text": lambda: "",
    "bytes": lambda: b"x",
    "a float": lambda: 3.5,
    "nan": lambda: float("nan"),
    "a large integer": lambda: 10**30,
    "a negative integer": lambda: -1,
    "an empty list": list,
    "an empty dict": dict,
    "a dict of None": lambda: {"a": None},
    "a list in a list": lambda: [["a"]],
    "a list with None": lambda: ["a", None],
    "a set": lambda: {"a"},
    "an object": object,
    "a class": lambda: int,
}


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.partition("(")[0])
def test_an_odd_argument_is_accepted_or_refused_with_a_code(call: str) -> None:
    node, function = called(call), made(call.partition("(")[0])
    parameters = inspect.signature(function).parameters
    values = [eval(ast.unparse(value), dict(NAMES)) for value in node.args]
    named = {str(k.arg): eval(ast.unparse(k.value), dict(NAMES)) for k in node.keywords}
    usual = inspect.signature(function).bind(*values, **named).arguments
    for name in parameters:
        for odd, make in ODD.items():
            given = {**usual, name: make()}
            refusal = outcome(lambda given=given: repr(function(**given)))
            assert refusal == refusal.upper(), (name, odd)


COUNTS = windows.tumbling("1 minute", time="ts", agg={"n": agg.count()}, delay="1 second")


@pytest.mark.parametrize("odd", ODD)
def test_an_operator_is_applied_to_frames_of_spark_only(odd: str) -> None:
    value: Any = ODD[odd]()
    with pytest.raises(StreamopsError) as caught:
        COUNTS(value)
    assert caught.value.code == "FRAME_TYPE"


@pytest.mark.parametrize("odd", ODD)
def test_a_replay_of_something_else_is_refused_with_a_code(odd: str) -> None:
    value: Any = ODD[odd]()
    calls: list[Callable[[], Any]] = [
        lambda: replay(value, [[]]),
        lambda: replay(COUNTS, value),
        lambda: Replay(COUNTS, pa.schema([("ts", pa.timestamp("us", "UTC"))])).run(value),
    ]
    for call in calls:
        outcome(call)
    with pytest.raises(StreamopsError, match="in this order"):
        replay([[{"a": 1}]], COUNTS)  # type: ignore
