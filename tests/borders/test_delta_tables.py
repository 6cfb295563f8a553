"""Delta tables that others have created, and micro-batches in every form that `sinks.delta` writes.

Tables have random columns, partitions, constraints, generated columns, declared lengths, features, properties,
rows of others, and what others do to them between two micro-batches. The law: the table has exactly the rows that a
simple model has, read by deltalake and by the reader of `tests/oracles`; or the micro-batch is refused with a
code and a remedy, for a reason that the table gives, and the table remains as it was.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import random
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamops import sinks
from streamops.errors import SchemaError, SinkError
from streamops.spark.identity import Identity
from tests.borders import cases
from tests.oracles.delta_tables import Row, read_delta

deltalake = pytest.importorskip("deltalake")

NAN, INF = math.nan, math.inf
INSTANTS = [
    dt.datetime.fromisoformat(text)
    for text in (
        "0001-01-01",
        "1969-12-31T23:59:59.999999",
        "2026-03-29T01:30:00.000001",
        "9999-12-31T23:59:59.999999",
    )
]
TEXTS = ["", "a", "A", "a ", "ü/ %=:#?", "x" * 40, "\U0001f600\n'\"", "__HIVE_DEFAULT_PARTITION__"]


@dataclass(frozen=True)
class Column:
    """A type of a column: in Arrow, in the schema of Delta, and values, among them the outermost ones."""

    arrow: pa.DataType
    delta: Any
    values: list[Any]
    wider: tuple[Any, ...] = ()
    """Types of a table that take all values."""
    others: tuple[Any, ...] = ("date",)
    """Types of a table that do not."""


def _integer(bits: int, name: str, wider: tuple[str, ...]) -> Column:
    least = -(2 ** (bits - 1))
    return Column(
        getattr(pa, f"int{bits}")(), name, [least, -1, 0, 7, -least - 1], wider, ("string",)
    )


def _array(item: Any) -> dict[str, Any]:
    return {"type": "array", "elementType": item, "containsNull": True}


def _struct(*, nullable: bool = True, **parts: Any) -> dict[str, Any]:
    fields = [
        {"name": n, "type": t, "nullable": nullable, "metadata": {}} for n, t in parts.items()
    ]
    return {"type": "struct", "fields": fields}


def _map(item: Any) -> dict[str, Any]:
    return {"type": "map", "keyType": "string", "valueType": item, "valueContainsNull": True}


ZONED = [value.replace(tzinfo=dt.UTC) for value in INSTANTS]
SCALARS = [
    Column(pa.bool_(), "boolean", [True, False]),
    _integer(8, "byte", ("short", "integer", "long")),
    _integer(16, "short", ("integer", "long")),
    _integer(32, "integer", ("long",)),
    _integer(64, "long", ()),
    Column(pa.float32(), "float", [NAN, -0.0, 0.0, 1.5, -INF], ("double",), ("long",)),
    Column(pa.float64(), "double", [NAN, -0.0, 0.0, 0.1, 1e300, INF], (), ("float",)),
    Column(
        pa.decimal128(10, 2),
        "decimal(10,2)",
        [Decimal(text) for text in ("-99999999.99", "-0.01", "0.00", "1.10", "99999999.99")],
        ("decimal(12,2)", "decimal(38,10)"),
        ("decimal(10,1)", "decimal(9,2)", "decimal(10,3)", "double"),
    ),
    Column(
        pa.decimal128(38, 0),
        "decimal(38,0)",
        [Decimal("-" + "9" * 38), Decimal(0), Decimal("9" * 38)],
        (),
        ("decimal(38,1)", "decimal(37,0)"),
    ),
    Column(pa.string(), "string", TEXTS, (), ("binary",)),
    Column(pa.binary(), "binary", [b"", b"\x00\xff", b"a"], (), ("string",)),
    Column(
        pa.date32(),
        "date",
        [dt.date(1, 1, 1), dt.date(1970, 1, 1), dt.date(9999, 12, 31)],
        (),
        ("string",),
    ),
    Column(pa.timestamp("us", "UTC"), "timestamp", ZONED, (), ("timestamp_ntz", "long")),
    Column(pa.timestamp("us"), "timestamp_ntz", INSTANTS, (), ("timestamp", "string")),
]
NESTED = [
    Column(pa.list_(pa.timestamp("us", "UTC")), _array("timestamp"), [[], [None, *ZONED]]),
    Column(pa.list_(pa.float64()), _array("double"), [[NAN, -0.0, None], []]),
    Column(
        pa.struct([("x", pa.timestamp("us")), ("y", pa.decimal128(10, 3))]),
        _struct(x="timestamp_ntz", y="decimal(10,3)"),
        [{"x": INSTANTS[2], "y": Decimal("-0.001")}, {"x": None, "y": None}],
        (),
        (
            _struct(X="timestamp_ntz", Y="decimal(10,3)"),
            _struct(y="decimal(10,3)", x="timestamp_ntz"),
            _struct(x="timestamp_ntz"),
        ),
    ),
    Column(
        pa.map_(pa.string(), pa.timestamp("us", "UTC")),
        _map("timestamp"),
        [[("", ZONED[1]), ("a", None)], []],
    ),
    Column(
        pa.list_(pa.struct([("b", pa.binary())])),
        _array(_struct(b="binary")),
        [[{"b": b"\x00"}, None], []],
    ),
]
KEYS = [column for column in SCALARS if not pa.types.is_boolean(column.arrow)]

FEATURES = [
    "allowColumnDefaults", "clustering", "domainMetadata", "icebergCompatV2", "identityColumns", "inCommitTimestamp",
    "rowTracking", "typeWidening", "vacuumProtocolCheck", "deletionVectors", "columnMapping", "something new",
]  # fmt: skip


@dataclass
class Table:
    """A table, what it has been filled with, and why it may refuse rows."""

    path: str
    schema: list[dict[str, Any]]
    columns: dict[str, Column]
    partitions: list[str] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)
    features: list[str] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    refuses: set[str] = field(default_factory=set)
    """Codes with which it refuses every row."""

    def create(self) -> None:
        """Write the first version of the log, as the protocol describes it."""
        readers = {
            "timestampNtz",
            "typeWidening",
            "vacuumProtocolCheck",
            "deletionVectors",
            "columnMapping",
            "something new",
            "v2Checkpoint",
        }
        protocol: dict[str, Any] = {"minReaderVersion": 1, "minWriterVersion": 7}
        features = sorted(
            {
                *self.features,
                *(["timestampNtz"] if "timestamp_ntz" in json.dumps(self.schema) else []),
            }
        )
        if any(name in readers for name in features):
            protocol["minReaderVersion"] = 3
            protocol["readerFeatures"] = [name for name in features if name in readers]
        if features:
            protocol["writerFeatures"] = features
        else:
            protocol["minWriterVersion"] = 2
        metadata = {
            "id": str(uuid.uuid4()),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": self.schema}),
            "partitionColumns": self.partitions,
            "configuration": self.settings,
            "createdTime": 1,
        }
        log = Path(self.path, "_delta_log")
        log.mkdir(parents=True)
        actions = [{"protocol": protocol}, {"metaData": metadata}]
        (log / f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)))


def make_table(path: str, chance: random.Random) -> Table:
    """A table that others could have created."""
    columns = {"k": chance.choice(KEYS), "n": SCALARS[4]}
    for number in range(chance.randint(0, 3)):
        columns[f"v{number}"] = chance.choice([*SCALARS, *NESTED])
    table = Table(path, [], columns)
    for name, column in columns.items():
        dtype = column.delta
        roll = chance.random()
        if column.wider and roll < 0.15:
            dtype = chance.choice(column.wider)
        elif roll > 0.96 and name != "n":
            dtype = chance.choice(column.others)
            table.refuses.add("TARGET_TYPE")
        table.schema.append({"name": name, "type": dtype, "nullable": True, "metadata": {}})
    by_name = {part["name"]: part for part in table.schema}
    roll = chance.random()
    if roll < 0.1:
        by_name["n"]["nullable"] = False
    elif roll < 0.2:
        table.settings["delta.constraints.small"] = "n < 1000 OR n IS NULL"
        table.features.append("checkConstraints")
    elif roll < 0.3:
        expression = json.dumps({"expression": {"expression": "n < 1000 OR n IS NULL"}})
        by_name["n"]["metadata"]["delta.invariants"] = expression
        table.features.append("invariants")
    elif roll < 0.4:
        table.features.append("generatedColumns")
        given = chance.random() < 0.7
        twice = {
            "name": "twice",
            "type": "long",
            "nullable": True,
            "metadata": {"delta.generationExpression": "n * 2"},
        }
        table.schema.append(twice)
        if given:
            columns["twice"] = Column(pa.int64(), "long", [])
        else:
            table.refuses.add("TARGET_COLUMNS")
    elif roll < 0.5:
        texts = [name for name, column in columns.items() if column.delta == "string"]
        for name in texts[:1]:
            declared = chance.choice(["varchar(10)", "varchar(40)", "char(5)"])
            by_name[name]["metadata"][CHARS] = declared
            if declared.startswith("char"):
                table.refuses.add("TARGET_TYPE")
    elif roll < 0.6:
        feature = chance.choice(FEATURES)
        if feature == "columnMapping" and any(isinstance(p["type"], dict) for p in table.schema):
            feature = "rowTracking"  # nested fields would need names of their own
        if feature == "columnMapping":
            table.settings["delta.columnMapping.mode"] = "name"
        elif feature == "deletionVectors":
            table.settings["delta.enableDeletionVectors"] = "true"
        table.features.append(feature)
        table.refuses = {"TARGET_FEATURE"}
    elif roll < 0.65:
        table.settings["delta.enableChangeDataFeed"] = "true"
        table.features.append("changeDataFeed")
    elif roll < 0.7:
        table.settings["delta.checkpointInterval"] = "2"
    elif roll < 0.75:
        table.features.append("v2Checkpoint")
    elif roll < 0.8:
        table.settings["delta.appendOnly"] = "true"
        table.features.append("appendOnly")
    if chance.random() < 0.3:
        table.partitions = chance.sample(
            [name for name, column in columns.items() if column in SCALARS], k=1
        )
        dtype = by_name[table.partitions[0]]["type"] if table.partitions[0] in by_name else "long"
        if dtype in {"float", "double", "binary", "timestamp"} or (
            str(dtype).startswith("decimal") and not str(dtype).endswith(",0)")
        ):
            table.refuses.add("TARGET_TYPE")
    if chance.random() < 0.03 and not table.partitions:
        by_name["n"]["name"] = "N"
        table.refuses.add("TARGET_COLUMNS")
    if chance.random() < 0.3:
        table.schema.append({"name": "other", "type": "string", "nullable": True, "metadata": {}})
    if "columnMapping" in table.features:
        for number, part in enumerate(table.schema):
            part["metadata"]["delta.columnMapping.id"] = number + 1
            part["metadata"]["delta.columnMapping.physicalName"] = f"col-{number}"
    table.create()
    return table


CHARS = "__CHAR_VARCHAR_TYPE_STRING"


def random_rows(table: Table, chance: random.Random, count: int) -> list[Row]:
    rows: list[Row] = []
    for _ in range(count):
        row: Row = {}
        for name, column in table.columns.items():
            if name == "n":
                row[name] = chance.choice([0, 1, 2, 999] * 4 + [1000, None])
            elif name == "twice":
                row[name] = None if row["n"] is None else row["n"] * 2 + (chance.random() < 0.05)
            else:
                row[name] = chance.choice([*column.values, None])
        rows.append(row)
    return rows


def invalid(table: Table, rows: list[Row]) -> set[str]:
    """Codes with which these rows may be refused, by the rules of the table."""
    codes = set()
    by_name = {part["name"].lower(): part for part in table.schema}
    for row in rows:
        n = row["n"]
        if n is None and not by_name["n"]["nullable"]:
            codes.add("TARGET_REFUSED")
        is_small = (
            "delta.constraints.small" in table.settings
            or "delta.invariants" in by_name["n"]["metadata"]
        )
        if is_small and n is not None and n >= 1000:
            codes.add("TARGET_REFUSED")
        if "twice" in row and row["twice"] != (None if n is None else n * 2):
            codes.add("TARGET_REFUSED")
        for name, value in row.items():
            declared = by_name.get(name, {"metadata": {}})["metadata"].get(CHARS, "")
            if declared.startswith("varchar") and len(value or "") > int(declared[8:-1]):
                codes.add("TARGET_TYPE")
            if name in table.partitions and value in {"", TEXTS[-1]}:
                codes.add("TARGET_TYPE")
    return codes


def key_of(value: Any) -> str:
    """Equal for values that are equal in Spark."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else repr(value + 0.0)
    return repr(value)


def canonical(rows: list[Row], key: str | None = None) -> Counter[str]:
    return Counter(repr(sorted((n, _plain(v, n == key)) for n, v in row.items())) for row in rows)


def _plain(value: Any, is_key: bool = False) -> str:
    """A text that differs for values that differ, whichever type the table has for them."""
    if isinstance(value, list | tuple):
        return repr([_plain(part) for part in value])
    if isinstance(value, dict):
        return repr([(name, _plain(part)) for name, part in value.items()])
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return f"{value.astimezone(dt.UTC).replace(tzinfo=None)!r} UTC"
    if isinstance(value, Decimal):
        text = format(value, "f")
        return text.rstrip("0").rstrip(".") if "." in text else text
    if isinstance(value, float):
        return "nan" if math.isnan(value) else repr(value + 0.0 if is_key else value)
    return repr(value)


class Model:
    """The rows of the table, by the meaning of each form."""

    def __init__(self, rows: list[Row], names: list[str]) -> None:
        self.rows, self.names = rows, names

    def filled(self, row: Row, old: Row | None = None) -> Row:
        return {name: row.get(name, (old or {}).get(name)) for name in self.names}

    def put(self, row: Row) -> None:
        old = next((r for r in self.rows if key_of(r["k"]) == key_of(row["k"])), None)
        if old is not None:
            revision = old.get("revision")  # null, of others, is older than any
            if "revision" in row and revision is not None and revision >= row["revision"]:
                return
            self.rows.remove(old)
        self.rows.append(self.filled(row, old))


def batches(
    form: str, table: Table, chance: random.Random, model: Model
) -> tuple[list[Row], Callable[[], None]]:
    """A micro-batch, and what it does to the model."""
    rows = random_rows(table, chance, chance.randint(0, 5))
    if form == "append":
        return rows, lambda: model.rows.extend(map(model.filled, rows))
    if form == "multiset":
        present = [row for row in model.rows if row.get("other") is None]
        removed = chance.sample(present, k=min(len(present), chance.randint(0, 2)))
        given = [{name: row[name] for name in table.columns} for row in removed]
        changes = [{**row, "_change_type": "delete"} for row in given]

        def apply() -> None:
            for row in removed:
                same = canonical([row])
                model.rows.remove(next(r for r in model.rows if canonical([r]) == same))
            model.rows.extend(map(model.filled, rows))

        return [*changes, *({**row, "_change_type": "insert"} for row in rows)], apply
    unique = list({key_of(row["k"]): row for row in rows}.values())
    if form != "upsert":
        for row in unique:
            row["revision"] = chance.randint(0, 5)
    if form != "changes":

        def put() -> None:
            for row in unique:
                model.put(row)

        return unique, put
    changes: list[Row] = []
    effects: list[tuple[Row | None, Row | None]] = []
    for row in unique:
        old = next((r for r in model.rows if key_of(r["k"]) == key_of(row["k"])), None)
        if old is None:
            changes.append({**row, "_change_type": "insert"})
            effects.append((None, row))
            continue
        before = {name: old[name] for name in [*table.columns, "revision"]}
        if before["revision"] is None:
            continue
        after = {**row, "k": before["k"], "revision": before["revision"] + 1}
        if chance.random() < 0.4:
            changes.append({**before, "_change_type": "delete"})
            effects.append((old, None))
        else:
            changes += [
                {**before, "_change_type": "update_preimage"},
                {**after, "_change_type": "update_postimage"},
            ]
            effects.append((old, after))

    def change() -> None:
        for old, new in effects:
            if old is not None:
                model.rows.remove(old)
            if new is not None:
                model.rows.append(model.filled(new, old))

    return changes, change


def arrow(table: Table, rows: list[Row], extra: dict[str, pa.DataType]) -> pa.Table:
    types = {name: column.arrow for name, column in table.columns.items()} | extra
    return pa.table(
        {name: pa.array([row[name] for row in rows], dtype) for name, dtype in types.items()}
    )


def read_twice(path: str, key: str | None) -> list[Row]:
    """The rows, of which both readers must find the same."""
    found = pa.table(deltalake.DeltaTable(path).scan().read_all()).to_pylist()
    assert canonical(found, key) == canonical(read_delta(path), key)
    return list(found)


def stored_schema(path: str, columns: list[dict[str, Any]]) -> Any:
    """These columns, as the newest version of the table declares them."""
    fields = json.loads(deltalake.DeltaTable(path).schema().to_json())["fields"]
    return [next(f for f in fields if f["name"] == part["name"]) for part in columns]


FORMS = ["append", "upsert", "revisions", "changes", "multiset"]


def run(path: str, seed: int) -> str:
    """Write some micro-batches to a random table. Return what happened."""
    chance = random.Random(seed)
    table, form = make_table(path, chance), chance.choice(FORMS)
    key = "k" if form in {"upsert", "revisions", "changes"} else None
    extra: dict[str, pa.DataType] = {}
    if form in {"revisions", "changes"}:
        extra["revision"] = pa.int64()
    options: dict[str, Any] = {"columns": "add" if extra else chance.choice(["exact", "add"])}
    names = [*(part["name"] for part in table.schema), *extra]
    if form in {"changes", "multiset"}:
        extra["_change_type"] = pa.string()
    model = Model([], names)
    if not table.refuses and chance.random() < 0.5:
        others = [row for row in random_rows(table, chance, 4) if not invalid(table, [row])]
        if key:
            others = list({key_of(row["k"]): row for row in others}.values())
        rows = arrow(table, others, {})
        deltalake.write_deltalake(
            path,
            rows.cast(
                pa.schema(
                    [
                        pa.schema(deltalake.DeltaTable(path).schema().to_arrow()).field(n)
                        for n in rows.column_names
                    ]
                )
            ),
            mode="append",
            schema_mode="merge",
        )
        model.rows = [model.filled(row) for row in others]
    outcome, query, batch = "written", 0, 0
    for number in range(chance.randint(1, 4)):
        if chance.random() < 0.2 and batch:
            query, batch = query + 1, 0
            options["new_checkpoint"] = chance.choice(["continue", "replace"])
        is_replaced = batch == 0 and options.get("new_checkpoint") == "replace"
        state = list(model.rows)
        if is_replaced:
            model.rows = []
        rows, apply = batches(form, table, chance, model)
        given = arrow(table, rows, extra)
        sink = sinks.delta(path, key=key, **options)
        before = (
            deltalake.DeltaTable(path).version() if "something new" not in table.features else None
        )
        try:
            sink._deliver_rows(given, batch, Identity(f"query {query}", f"run {number}"))
        except (SinkError, SchemaError) as error:
            allowed = table.refuses | invalid(
                table,
                [r for r in rows if r.get("_change_type") not in {"delete", "update_preimage"}],
            )
            if "delta.appendOnly" in table.settings and (model.rows or is_replaced):
                allowed.add("TARGET_REFUSED")
            if "generatedColumns" in table.features and "revision" in extra:
                allowed.add("TARGET_REFUSED")  # deltalake adds no column to such a table
            is_named = error.code != "TARGET_FEATURE" or any(f in error.got for f in table.features)
            if error.code not in allowed or not error.fix or not is_named:
                raise AssertionError((seed, form, number, str(error))) from error
            if before is None:
                return error.code
            deltalake_rows = (
                pa.table(deltalake.DeltaTable(path).scan().read_all()).to_pylist()
                if "TARGET_FEATURE" not in allowed
                else state
            )
            assert canonical(deltalake_rows, key) == canonical(
                [{n: r[n] for n in (deltalake_rows[0] if deltalake_rows else r)} for r in state],
                key,
            ), (seed, number)
            return error.code
        assert not table.refuses or not rows, (seed, form, number, table.refuses, "not refused")
        apply()
        assert not invalid(table, model.rows), (seed, form, number, "not refused")
        assert stored_schema(path, table.schema) == table.schema, (seed, form, number)
        found = read_twice(path, key)
        expected = [
            {name: row[name] for name in (found[0] if found else row)} for row in model.rows
        ]
        assert canonical(found, key) == canonical(expected, key), (seed, form, number)
        maintain(path, chance)
        options.pop("new_checkpoint", None)
        batch += 1
    return outcome


def maintain(path: str, chance: random.Random) -> None:
    """What others do between two micro-batches, without a change of rows."""
    table, roll = deltalake.DeltaTable(path), chance.random()
    if roll < 0.15:
        table.optimize.compact()
    elif roll < 0.2:
        table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    elif roll < 0.3:
        deltalake.write_deltalake(
            path, pa.schema(table.schema().to_arrow()).empty_table(), mode="append"
        )


def test_tables_of_others_have_exactly_the_rows_or_are_refused(tmp_path: Path) -> None:
    outcomes: Counter[str] = Counter()
    for seed in range(cases(60, 1500)):
        outcomes[run(str(tmp_path / f"table {seed}"), seed)] += 1
    print(dict(outcomes))
    assert outcomes["written"] > 10
    assert {"TARGET_TYPE", "TARGET_FEATURE"} <= set(outcomes)
