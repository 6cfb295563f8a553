"""Stored sketches as values, in plain Python."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamops import sketches
from streamops.kernel.errors import SketchFormatError
from streamops.kernel.groups import Groups
from streamops.sketches import stored as stored_module
from streamops.sketches.core.sketch import Format, Framed, pack_frames
from tests.sketches.linear import FORMAT, Linear


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_module, "SKETCH_TYPES", {"linear": "tests.sketches.linear"})


def blob_of(*values: str | None, cells: int = 4) -> bytes:
    summary = Framed(Linear("v", cells))
    rows = pa.table({"v": pa.array(values, pa.string())})
    states = summary.update(Groups(np.zeros(len(values), np.int64), 1), rows)
    blob: bytes = summary.estimate(states)[0].as_py()
    return blob


def refused(blob: Any) -> SketchFormatError:
    with pytest.raises(SketchFormatError) as caught:
        sketches.read(blob)
    assert caught.value.where.startswith("sketches.read")
    return caught.value


def test_a_stored_sketch_has_an_estimate() -> None:
    blob = blob_of("a", "b", None, "a")
    value = sketches.read(blob)
    assert isinstance(value, sketches.StoredSketch)
    assert (value.type, value.parameters) == ("linear", {"cells": 4})
    assert value.estimate() == {"estimate": 3, "lower": 3, "upper": 3}
    assert value.bounds() == (3, 3)
    assert value.to_bytes() == blob
    assert sum(value.cell(number) for number in range(4)) == 3  # type: ignore[attr-defined]
    assert repr(value) == "LinearValue(type='linear', parameters={'cells': 4})"


def test_stored_sketches_are_values_that_merge() -> None:
    one, other, both = (sketches.read(blob_of(*v)) for v in (["a"], ["b", "c"], ["c", "a", "b"]))
    merged = one.merge(other)
    assert merged == both
    assert hash(merged) == hash(both)
    assert type(merged) is type(one)
    assert one.merge() == one == copy.copy(one) != other
    assert one.merge(other, other).estimate()["estimate"] == 5
    assert sketches.read(bytearray(one.to_bytes())) == one
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.type = "other"  # type: ignore[misc]


def test_a_sketch_with_other_parameters_is_not_merged() -> None:
    one, other = (sketches.read(blob_of("a", cells=cells)) for cells in (4, 5))
    with pytest.raises(SketchFormatError) as caught:
        one.merge(other)
    assert caught.value.code == "SKETCH_PARAMETERS"
    assert caught.value.where == "StoredSketch.merge, sketch 1"


def test_an_invalid_sketch_is_refused() -> None:
    assert refused(b"").code == "SKETCH_CORRUPT"
    assert refused(b"\x02\x01\x07" * 20).code == "SKETCH_CORRUPT"
    assert refused(blob_of("a")[:-1]).code == "SKETCH_CORRUPT"
    (whole,) = pack_frames(FORMAT, {"cells": 4}, pa.array([b"\xff" * 32])).to_pylist()
    assert refused(whole).what == "no counts"


def test_an_unknown_type_of_sketch_is_refused() -> None:
    (blob,) = pack_frames(Format("quadratic", 1), {}, pa.array([b""])).to_pylist()
    assert str(refused(blob)) == (
        "[SKETCH_KIND] sketches.read: this type of sketch is unknown\n"
        "  got:       quadratic\n"
        "  expected:  one of: linear\n"
        "  fix:       use the release of streamops that wrote it, or a later one"
        "\n  see:       docs/errors.md#sketch_kind"
    )


def test_a_later_version_is_refused_before_its_parameters_are_read() -> None:
    (blob,) = pack_frames(Format("linear", 2), {"rows": 1}, pa.array([b""])).to_pylist()
    assert refused(blob).code == "SKETCH_UNSUPPORTED"


@pytest.mark.parametrize("parameters", [{}, {"cells": 0}, {"cells": "4"}])
def test_invalid_parameters_of_stored_sketches_are_refused(parameters: Any) -> None:
    (blob,) = pack_frames(FORMAT, parameters, pa.array([b""])).to_pylist()
    error = refused(blob)
    assert error.code == "SKETCH_PARAMETERS"
    assert error.what == "a sketch of this type cannot have these parameters"
    if parameters == {"cells": 0}:
        assert (error.got, error.expected) == (
            "cells=0",
            "for linear: cells=0 is no number of cells",
        )
