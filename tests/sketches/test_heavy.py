"""Heavy hitters and frequencies as aggregates, and as stored sketches that are asked."""

from __future__ import annotations

from typing import Any

import datasketches
import pyarrow as pa
import pytest

from streamops import sketches, windows
from streamops.aggregates import approx_top_k, count_min
from streamops.kernel.errors import (
    ColumnNotFound,
    SchemaError,
    SketchFormatError,
    SpecError,
    located,
)
from streamops.sketches import count_min_sketch, top_k_sketch_agg
from streamops.sketches.core.sketch import Format, pack_frames
from streamops.sketches.count_min import count_rows
from streamops.testing import at, replay

UTC = pa.timestamp("us", "UTC")
WHERE = "windows.tumbling"
FLAT = (
    "a type that is not nested: boolean, number, string, binary, date, timestamp, interval, by its "
    "name in Spark's simpleString()"
)
SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("ts", UTC),
        ("page", pa.string()),
        ("bytes", pa.int32()),
        ("price", pa.float64()),
        ("route", pa.struct([("from", pa.string()), ("to", pa.string())])),
        ("tags", pa.map_(pa.string(), pa.string())),
    ]
)


def visit(second: int, page: str | None, size: int | None = 1, key: str = "k") -> dict[str, Any]:
    route = None if page is None else {"from": page, "to": "home"}
    return {"k": key, "ts": at(second), "page": page, "bytes": size, "route": route}


SCRIPT = [
    [visit(1, "a"), visit(2, "b", 5), visit(3, "a", 2), visit(4, None), visit(5, "a", None)],
    [visit(6, "c", 9), visit(7, "b", 0), visit(8, "a"), visit(9, "x", key="other")],
    [visit(70, "a", 3)],
    [visit(200, "z")],
]


def tumbling(size: str, agg: Any, **arguments: Any) -> Any:
    given: dict[str, Any] = {"time": "ts", "by": "k", "delay": "1 minute"} | arguments
    return windows.tumbling(size, agg=agg, **given)


def results(transform: Any, **arguments: Any) -> list[dict[str, Any]]:
    played = replay(transform, SCRIPT, schema=SCHEMA, flush=True, **arguments)
    return [row for batch in played for row in batch.rows]


def bound(aggregate: Any, schema: pa.Schema = SCHEMA) -> Any:
    with located(WHERE):
        return aggregate.bind(schema, time="ts")


def emitted(result: dict[str, Any]) -> list[tuple[Any, ...]]:
    assert all(item["estimate"] == item["upper"] for item in result["items"])
    return [(item["item"], item["lower"], item["upper"]) for item in result["items"]]


@pytest.mark.parametrize("restart", [False, True])
def test_one_window_has_both_estimates_and_their_sketches(restart: bool) -> None:
    agg = {
        "top": approx_top_k("page", at_least=0.25, top=2),
        "heavy": approx_top_k("page", counters=2, weight="bytes"),
        "routes": approx_top_k("route", at_least=0.5),
        "of": count_min("page", of=["c", "a", "nowhere"]),
        "sizes": count_min("page", of=["b"], weight="bytes"),
        "hs": top_k_sketch_agg("page", at_least=0.25),
        "fs": count_min_sketch("page", relative_error=0.1, confidence=0.9),
    }
    first, *_ = (
        row for row in results(tumbling("1 minute", agg), restart=restart) if row["k"] == "k"
    )
    assert emitted(first["top"]) == [("a", 4, 4), ("b", 2, 2)]
    assert first["top"] | {"items": None} == {"items": None, "relative_error": 0.0, "count": 7}
    assert emitted(first["heavy"]) in (
        [("c", 5, 9), ("b", 1, 5)],
        [("c", 9, 9), ("b", 5, 5), ("a", 4, 4)],
    )
    assert first["heavy"]["count"] == 18
    assert emitted(first["routes"]) == [({"from": "a", "to": "home"}, 4, 4)]
    assert emitted(first["of"]) == [("c", 1, 1), ("a", 4, 4), ("nowhere", 0, 0)]
    assert emitted(first["sizes"]) == [("b", 5, 5)]
    heavy, counts = sketches.read(first["hs"]), sketches.read(first["fs"])
    assert emitted(heavy.estimate()) == [("a", 4, 4), ("b", 2, 2), ("c", 1, 1)]
    assert heavy.parameters == {"counters": 16, "type": "string"}
    assert heavy.bounds() == ([4, 2, 1], [4, 2, 1])
    assert counts.parameters == {"width": 28, "depth": 3, "type": "string"}
    assert counts.estimate() == {"items": [], "relative_error": 0.0, "count": 7}
    for entry in (heavy, counts):
        assert isinstance(entry, sketches.StoredCounts)
        assert entry.estimate_counts(["b", None, "x"]) == [(2, 2), (0, 0), (0, 0)]
        assert entry.estimate_counts(pa.array(["a"], pa.large_string()))[0].upper == 4
        assert entry.estimate_counts(pa.chunked_array([["a"], ["b"]]))[1].lower == 2
        assert entry.merge(entry).estimate_counts(["a"]) == [(8, 8)]


def test_stored_sketches_are_merged_and_queried_for_other_items() -> None:
    minutes = results(
        tumbling(
            "1 minute",
            {"h": top_k_sketch_agg("page", counters=9), "f": count_min_sketch("page")},
        )
    )
    assert len(minutes) == 4
    schema = pa.schema(
        [("k", pa.string()), ("window_start", UTC), ("h", pa.binary()), ("f", pa.binary())]
    )
    like = {"item_type": "string"}
    agg = {
        "h": sketches.merge("h", like=approx_top_k("page", counters=9, top=1, **like)),
        "f": sketches.merge("f", like=count_min("page", of=["a", "z"], **like)),
        "s": sketches.merge("f", like=count_min_sketch("page", **like)),
    }
    rows = [{name: row[name] for name in schema.names} for row in minutes]
    hourly = tumbling("1 hour", agg, time="window_start")
    (played,) = replay(hourly, [rows], schema=schema, flush=True)[-1:]
    (row,) = (row for row in played.rows if row["k"] == "k")
    assert emitted(row["h"]) == [("a", 5, 5)]
    assert emitted(row["f"]) == [("a", 5, 5), ("z", 1, 1)]
    assert sketches.read(row["s"]).estimate_counts(["b"]) == [(2, 2)]  # type: ignore[attr-defined]


def test_the_repr_of_an_aggregate_is_its_call() -> None:
    heavy = approx_top_k("page", counters=5, weight="bytes")
    assert repr(heavy) == "approx_top_k('page', weight='bytes', counters=5)"
    assert heavy.columns == ("page", "bytes")
    assert not heavy.native
    assert repr(count_min_sketch("page", item_type="int")) == (
        "count_min_sketch('page', item_type='int', relative_error=0.001, confidence=0.99)"
    )
    with pytest.raises(SpecError, match=r"\[SKETCH_UNSUPPORTED\]"):
        heavy.to_spark()


def test_the_number_of_counters_follows_from_the_share() -> None:
    assert bound(approx_top_k("page", at_least=0.01)).counters == 400
    assert bound(approx_top_k("page", at_least=0.01, counters=100)).counters == 100
    assert bound(approx_top_k("page", at_least=1)).counters == 4


@pytest.mark.parametrize(
    ("make", "code", "got"),
    [
        (lambda: approx_top_k("p"), "PARAMETER_MISSING", "neither `at_least` nor `counters`"),
        (lambda: approx_top_k("p", at_least=0.0), "PARAMETER_OUT_OF_RANGE", "at_least=0.0"),
        (lambda: approx_top_k("p", at_least=1.5), "PARAMETER_OUT_OF_RANGE", "at_least=1.5"),
        (lambda: approx_top_k("p", at_least=True), "PARAMETER_OUT_OF_RANGE", "at_least=True"),
        (
            lambda: approx_top_k("p", at_least=float("nan")),
            "PARAMETER_OUT_OF_RANGE",
            "at_least=nan",
        ),
        (
            lambda: approx_top_k("p", at_least=0.01, counters=99),
            "PARAMETER_OUT_OF_RANGE",
            "counters=99",
        ),
        (lambda: top_k_sketch_agg("p", counters=0), "PARAMETER_OUT_OF_RANGE", "counters=0"),
        (
            lambda: top_k_sketch_agg("p", counters=True),
            "PARAMETER_OUT_OF_RANGE",
            "counters=True",
        ),
        (lambda: approx_top_k("p", counters=9, top=0), "PARAMETER_OUT_OF_RANGE", "top=0"),
        (lambda: approx_top_k("p", counters=9, weight=3), "PARAMETER_TYPE", "3 of type int"),
        (lambda: top_k_sketch_agg(3, counters=9), "PARAMETER_TYPE", "3 of type int"),
        (lambda: count_min_sketch("p", item_type=3), "PARAMETER_TYPE", "3 of type int"),
        (lambda: count_min_sketch("p", item_type="long"), "VALUE_TYPE", "item_type='long'"),
        (lambda: count_min("p", of=[]), "PARAMETER_MISSING", "of=[]"),
        (lambda: count_min("p", of=["a", None]), "PARAMETER_MISSING", "of=['a', None]"),
        (lambda: count_min("p", of="abc"), "PARAMETER_MISSING", "of='abc'"),
        (lambda: count_min("p", of=3), "PARAMETER_MISSING", "of=3"),
        (
            lambda: count_min_sketch("p", relative_error=0.0),
            "PARAMETER_OUT_OF_RANGE",
            "relative_error=0.0",
        ),
        (lambda: count_min_sketch("p", confidence=1), "PARAMETER_OUT_OF_RANGE", "confidence=1"),
        (
            lambda: count_min_sketch("p", relative_error=1e-6, confidence=0.999),
            "PARAMETER_OUT_OF_RANGE",
            "19,027,974 cells of eight bytes per group",
        ),
    ],
)
def test_contradictory_parameters_are_refused(make: Any, code: str, got: str) -> None:
    with pytest.raises(SpecError) as caught:
        make()
    assert (caught.value.code, caught.value.got) == (code, got)
    assert caught.value.where.startswith(("aggregates.", "sketches."))


def test_messages_have_a_fix() -> None:
    with pytest.raises(SpecError) as caught:
        approx_top_k("page", at_least=0.01, counters=99)
    assert str(caught.value) == (
        "[PARAMETER_OUT_OF_RANGE] aggregates.approx_top_k: `counters` is out of range\n"
        "  got:       counters=99\n"
        "  expected:  an integer from 100 to 1,000,000\n"
        "  fix:       use counters=100, or leave it out"
        "\n  see:       docs/errors.md#parameter_out_of_range"
    )
    with pytest.raises(SpecError) as caught:
        count_min_sketch("page", confidence=1.5)
    assert str(caught.value) == (
        "[PARAMETER_OUT_OF_RANGE] sketches.count_min_sketch: `confidence` is out of range\n"
        "  got:       confidence=1.5\n"
        "  expected:  a number above 0 and below 1\n"
        "  fix:       use the default, confidence=0.99"
        "\n  see:       docs/errors.md#parameter_out_of_range"
    )


@pytest.mark.parametrize(
    ("aggregate", "code", "got"),
    [
        (
            approx_top_k("tags", counters=9),
            "COLUMN_TYPE",
            "column 'tags' of type map<string,string>",
        ),
        (
            approx_top_k("page", counters=9, weight="price"),
            "COLUMN_TYPE",
            "column 'price' of type double",
        ),
        (count_min_sketch("tags"), "TYPE_UNSUPPORTED", "map<string,string>"),
        (
            top_k_sketch_agg("route", counters=9),
            "VALUE_TYPE",
            "column 'route' of type struct<from:string,to:string>",
        ),
        (
            count_min_sketch("route"),
            "VALUE_TYPE",
            "column 'route' of type struct<from:string,to:string>",
        ),
        (
            count_min_sketch("bytes", item_type="bigint"),
            "VALUE_TYPE",
            "column 'bytes' of type int",
        ),
    ],
)
def test_a_column_of_the_wrong_type_is_refused(aggregate: Any, code: str, got: str) -> None:
    with pytest.raises(SchemaError) as caught:
        bound(aggregate)
    assert (caught.value.code, caught.value.got) == (code, got)


def test_a_missing_column_and_an_item_of_another_type_are_refused() -> None:
    with pytest.raises(ColumnNotFound, match="did you mean 'page'"):
        bound(count_min_sketch("pages"))
    with pytest.raises(ColumnNotFound) as missing:
        bound(count_min_sketch("page", weight="size"))
    assert "column 'size', given as `agg: count_min_sketch('page', weight='size'" in str(
        missing.value
    )
    with pytest.raises(SpecError) as caught:
        bound(count_min("bytes", of=["a"]))
    assert (caught.value.code, caught.value.expected) == ("VALUE_TYPE", "values of type int")
    with pytest.raises(SpecError) as caught:
        bound(count_min("bytes", of=[2**40]))
    assert caught.value.code == "VALUE_TYPE"
    changes = SCHEMA.append(pa.field("_change_type", pa.string()))
    for aggregate in (
        count_min_sketch("page", weight="bytes"),
        top_k_sketch_agg("page", counters=9),
    ):
        with pytest.raises(SchemaError) as refused:
            bound(aggregate, changes)
        assert refused.value.code == "CHANGE_STREAM_INPUT"


@pytest.mark.parametrize("like", [top_k_sketch_agg("v", counters=9), count_min_sketch("v")])
def test_stored_sketches_require_the_type_of_their_items(like: Any) -> None:
    with pytest.raises(SpecError) as caught:
        bound(sketches.merge("s", like=like), pa.schema([("s", pa.binary())]))
    assert (caught.value.code, caught.value.got) == ("PARAMETER_MISSING", f"like={like!r}")
    assert caught.value.fix == f"{like.function}('v', item_type=\"string\", ...)"
    with pytest.raises(SpecError) as caught:
        sketches.estimate_count("s", "v", like=like)
    assert caught.value.code == "PARAMETER_MISSING"


def test_every_row_queries_its_own_sketch() -> None:
    like = count_min_sketch("page", item_type="string")
    sketch: Any = like.sketch(None)
    minutes = results(tumbling("1 minute", {"f": count_min_sketch("page")}))
    by_key = {(row["k"], row["window_start"]): row["f"] for row in minutes}
    one, other = by_key["k", at(0)], by_key["other", at(0)]
    blobs = pa.array([one, None, other, one, one], pa.binary())
    requested = pa.array(["a", "a", "a", None, "b"], pa.large_string())
    assert count_rows(sketch, blobs, requested).to_pylist() == [
        {"estimate": 4, "lower": 4, "upper": 4},
        None,
        {"estimate": 0, "lower": 0, "upper": 0},
        None,
        {"estimate": 2, "lower": 2, "upper": 2},
    ]
    assert count_rows(sketch, blobs[:0], requested[:0]).to_pylist() == []
    with pytest.raises(SketchFormatError) as caught, located("windows.tumbling"):
        count_rows(sketch, pa.array([one, b"nonsense"]), requested[:2])
    assert (caught.value.code, caught.value.where) == ("SKETCH_CORRUPT", f"{WHERE}, sketch 1")


def test_other_sketches_cannot_be_queried_by_item() -> None:
    with pytest.raises(SpecError) as caught:
        sketches.estimate_count("s", "v", like="hll")  # type: ignore[arg-type]
    assert caught.value.code == "PARAMETER_TYPE"
    with pytest.raises(SpecError) as caught:
        sketches.estimate_count(3, "v", like=count_min_sketch("v"))  # type: ignore[arg-type]
    assert caught.value.code == "PARAMETER_TYPE"


def stored(dtype: str, payload: bytes, **parameters: Any) -> bytes:
    (blob,) = pack_frames(Format(dtype, 1), parameters, pa.array([payload])).to_pylist()
    return bytes(blob)


@pytest.mark.parametrize(
    ("dtype", "parameters", "expected"),
    [
        ("heavy_hitters", {}, "one of them"),
        ("heavy_hitters", {"counters": 0, "type": "int"}, "an integer from 1 to 1,000,000"),
        ("heavy_hitters", {"counters": 9.0, "type": "int"}, "an integer from 1 to 1,000,000"),
        ("heavy_hitters", {"counters": 9, "type": "array<int>"}, FLAT),
        ("frequency", {"width": 9}, "'depth'"),
        ("frequency", {"width": 0, "depth": 1, "type": "int"}, "a width and a depth of 1 or more"),
        (
            "frequency",
            {"width": 9, "depth": "1", "type": "int"},
            "a width and a depth of 1 or more",
        ),
        ("frequency", {"width": 2**24, "depth": 2, "type": "int"}, "at most 16777216 cells"),
        ("frequency", {"width": 9, "depth": 2, "type": 3}, "a type that is not nested"),
    ],
)
def test_invalid_parameters_of_stored_sketches_are_refused(
    dtype: str, parameters: Any, expected: str
) -> None:
    with pytest.raises(SketchFormatError) as caught:
        sketches.read(stored(dtype, b"", **parameters))
    assert caught.value.code == "SKETCH_PARAMETERS"
    assert caught.value.expected == f"for {dtype}: {expected}"


def test_a_damaged_payload_and_invalid_values_are_refused() -> None:
    with pytest.raises(SketchFormatError) as caught:
        sketches.read(stored("frequency", b"xyz", width=9, depth=2, type="int"))
    assert (caught.value.code, caught.value.where) == (
        "SKETCH_CORRUPT",
        "sketches.read, sketches, frequency",
    )
    empty = sketches.read(stored("frequency", bytes(12), width=9, depth=2, type="int"))
    assert isinstance(empty, sketches.StoredCounts)
    assert empty.estimate_counts([7]) == [(0, 0)]
    for wrong in (["a"], "7", b"7", 7, [2**40]):
        with pytest.raises(SpecError) as refused:
            empty.estimate_counts(wrong)  # type: ignore[arg-type]
        assert refused.value.code == "VALUE_TYPE"


def test_sketches_of_items_of_another_type_are_not_merged() -> None:
    one, other = (
        sketches.read(stored("frequency", bytes(12), width=9, depth=2, type=name))
        for name in ("int", "bigint")
    )
    with pytest.raises(SketchFormatError) as caught:
        one.merge(other)
    assert caught.value.code == "SKETCH_PARAMETERS"
    assert caught.value.got == "type='bigint'"


def test_stored_heavy_hitters_are_exchanged_with_apache() -> None:
    theirs = datasketches.frequent_strings_sketch(6)
    for number in range(500):
        theirs.update(f"w{number * number % 97}", 2)
    value = sketches.StoredCounts.from_datasketches(theirs.serialize(), counters=18)
    assert value.parameters == {"counters": 18, "type": "string"}
    assert value.estimate()["count"] == 1_000
    assert sketches.read(value.to_bytes()) == value
    back = datasketches.frequent_strings_sketch.deserialize(value.to_datasketches())
    assert [back.get_lower_bound(f"w{n}") for n in range(9)] == [
        found.lower for found in value.estimate_counts([f"w{n}" for n in range(9)])
    ]
    numbers = sketches.StoredCounts.from_datasketches(
        bytes([1, 1, 10, 3, 3, 5, 0, 0]), counters=1, item_type="bigint"
    )
    assert numbers.estimate() == {"items": [], "relative_error": 0.0, "count": 0}
    for arguments, code in [
        ({"counters": 0}, "PARAMETER_OUT_OF_RANGE"),
        ({"counters": 9, "item_type": "long"}, "VALUE_TYPE"),
    ]:
        with pytest.raises(SpecError) as caught:
            sketches.StoredCounts.from_datasketches(b"", **arguments)  # type: ignore[arg-type]
        assert caught.value.code == code
    with pytest.raises(SchemaError) as refused:
        sketches.StoredCounts.from_datasketches(b"", counters=9, item_type="double")
    assert refused.value.code == "SKETCH_UNSUPPORTED"


def test_count_min_has_no_image() -> None:
    with pytest.raises(SpecError) as caught:
        sketches.to_datasketches("s", like=count_min_sketch("v", item_type="string"))
    assert caught.value.code == "SKETCH_UNSUPPORTED"
