"""Types of columns that tables of PostgreSQL can have, and values for them."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa

UTC = dt.UTC
TIMESTAMPS = [
    dt.datetime.fromisoformat(text)
    for text in (
        *("2026-03-29T01:30:00.123456", "2026-03-29T01:30:00.123", "2026-03-29T01:30:00"),
        *("0001-01-01T00:00:00.000001", "1969-12-31T23:59:59.999999", "9999-12-30T23:59:59.999999"),
    )
]
_WIDE = chr(0xFF53) * 2
TEXTS = [
    *(
        "",
        "a",
        "A",
        "a ",
        " a",
        "ab",
        "abc",
        "ABC",
        "abcd",
        "abcdefgh",
        "abcdeXYZ",
        "EURO",
        "\u00e9",
        "e\u0301",
    ),
    *(
        "1",
        "1.0",
        "1.00",
        "1.0 ",
        "01",
        "true",
        "t",
        "NULL",
        "null",
        '"a"',
        "{}",
        "[1,5)",
        "(1,5)",
        "(1,a)",
    ),
    *(
        '{"a": 1}',
        '{"a":1}',
        '{"b": 1, "a": 2}',
        '{"a":1,"a":2}',
        '{"a": 1.0}',
        '{"a": 1.00}',
        "[1, 2]",
    ),
    *("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"),
    *(
        "2026-01-01",
        "127.0.0.1",
        "101",
        "it's \\ \n\t",
        "\U0001f600",
        "\u00df",
        _WIDE,
        "x" * 70,
        "red",
        "green",
    ),
]


class Pool(NamedTuple):
    """What arrives; its values; types that store all of them; other types that a table can have."""

    arrow: pa.DataType
    values: list[Any]
    exact: list[str]
    others: list[str]


def _pool(arrow: pa.DataType, values: list[Any], exact: str, others: str) -> Pool:
    return Pool(arrow, values, exact.split(", "), others.split(", "))


JSON_TEXTS = _pool(
    pa.string(),
    ['{"a":1}', '{"a":2}', "[1.5,null]", '{"b":1,"a":2}'],
    "jsonb, json, text",
    "varchar(10), xml, uuid",
)

POOLS = [
    _pool(
        pa.string(),
        TEXTS,
        'text, varchar, text COLLATE "C", unbounded, text COLLATE danish',
        'varchar(1), varchar(5), varchar(80), char, char(1), char(4), bpchar, "char", name, json, jsonb, uuid, citext, '
        "color, short, shorter, padded, folded, nocase, text COLLATE nocase, varchar(5) COLLATE nocase, xml, inet, "
        "money, integer, bytea, date, int4range, pair, tsvector, bit(3), boolean, present, email, whole, ids",
    ),
    _pool(
        pa.int8(),
        [0, 1, -1, 127, -128],
        "smallint, integer, bigint, numeric",
        'numeric(2,0), real, text, boolean, money, positive, "char", smallint[]',
    ),
    _pool(
        pa.int32(),
        [0, 1, -1, 2**31 - 1, -(2**31), 16_777_217],
        "integer, bigint, numeric",
        "smallint, numeric(5,0), numeric(12,2), real, double precision, oid, whole, positive",
    ),
    _pool(
        pa.int64(),
        [0, 1, -1, 2**63 - 1, -(2**63), 2**53 + 1],
        "bigint, numeric",
        "integer, smallint, double precision, numeric(10,0), money, text, interval, bigint[]",
    ),
    _pool(
        pa.float32(),
        [0.0, -0.0, 1.5, 0.625, float("inf"), float("nan"), 2.0**127],
        "real, double precision",
        "numeric, numeric(10,2), text, money",
    ),
    _pool(
        pa.float64(),
        [0.0, -0.0, 1.5, 0.1, 1e300, float("-inf"), float("nan"), 2.0**53 + 2],
        "double precision",
        "real, numeric, numeric(10,2), text, bigint, rounded",
    ),
    _pool(
        pa.decimal128(10, 2),
        [Decimal("0.00"), Decimal("1.50"), Decimal("-1.25"), Decimal("12345678.99")],
        "numeric, numeric(10,2), numeric(12,4)",
        "numeric(5,1), numeric(10,1), numeric(8,2), numeric(12,-1), money, real, text, price",
    ),
    _pool(
        pa.decimal128(38, 18),
        [Decimal(0), Decimal("1.5"), Decimal("-1e-18"), Decimal("1234567890.000000000000000001")],
        "numeric, numeric(38,18)",
        "numeric(30,10), double precision, price",
    ),
    _pool(
        pa.date32(),
        [value.date() for value in TIMESTAMPS],
        "date",
        "timestamp, timestamptz, text, daterange, day",
    ),
    _pool(
        pa.timestamp("us", "UTC"),
        [value.replace(tzinfo=UTC) for value in TIMESTAMPS],
        "timestamptz, timestamptz(6)",
        "timestamptz(0), timestamptz(3), timestamp, date, text, time, instant",
    ),
    _pool(
        pa.timestamp("us"),
        TIMESTAMPS,
        "timestamp, timestamp(6)",
        "timestamp(0), timestamp(3), timestamptz, date, text, second",
    ),
    _pool(
        pa.time64("us"),
        [dt.time.fromisoformat(text) for text in ("00:00", "01:02:03", "23:59:58.999999")],
        "time",
        "time(0), timetz, interval, text",
    ),
    _pool(
        pa.duration("us"),
        [dt.timedelta(0), dt.timedelta(days=400, microseconds=1), dt.timedelta(seconds=-90)],
        "interval",
        "interval(0), interval hour to minute, interval year to month, time, text",
    ),
    _pool(
        pa.binary(),
        [b"", b"a", b"\x00\xff", b"a "],
        "bytea",
        "text, bit varying, digest, uuid",
    ),
    _pool(pa.bool_(), [True, False], "boolean", "integer, text, bit(1), agreed"),
    _pool(
        pa.list_(pa.string()),
        [
            [],
            ["a"],
            ["A"],
            ["a", None],
            ["a "],
            ["abcdefgh", "b"],
            ["NULL", ""],
            ['{"a":1}'],
            ['q"x,'],
        ],
        "text[], varchar[]",
        "varchar(3)[], char(4)[], bpchar[], uuid[], jsonb[], json[], short[], citext[], text[] COLLATE nocase, "
        "text, tags, name[], color[]",
    ),
    _pool(
        pa.list_(pa.int32()),
        [[], [1], [1, None, 2], [2**31 - 1]],
        "integer[], bigint[], integer[3]",
        "smallint[], text[], int4range, jsonb",
    ),
    _pool(
        pa.list_(pa.timestamp("us", "UTC")),
        [[], [TIMESTAMPS[0].replace(tzinfo=UTC), None], [TIMESTAMPS[2].replace(tzinfo=UTC)]],
        "timestamptz[]",
        "timestamptz(0)[], timestamp[], date[]",
    ),
    _pool(
        pa.list_(pa.decimal128(10, 2)),
        [[], [Decimal("1.50"), None], [Decimal("-1.25")]],
        "numeric[], numeric(10,2)[], numeric(12,3)[]",
        "numeric(10,1)[], numeric(5,2)[], price[]",
    ),
]

PREPARED = """
CREATE EXTENSION citext; CREATE EXTENSION file_fdw;
CREATE COLLATION nocase (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE COLLATION danish (provider = icu, locale = 'da-DK');
CREATE TYPE color AS ENUM ('red', 'green', 'a', 'A'); CREATE TYPE pair AS (number int, word text);
CREATE DOMAIN unbounded AS text CHECK (VALUE <> 'no'); CREATE DOMAIN short AS varchar(3);
CREATE DOMAIN shorter AS short CHECK (VALUE <> 'no'); CREATE DOMAIN padded AS char(4);
CREATE DOMAIN folded AS text COLLATE nocase; CREATE DOMAIN nocase AS citext; CREATE DOMAIN present AS text NOT NULL;
CREATE DOMAIN email AS citext CHECK (VALUE LIKE '%@%'); CREATE DOMAIN ids AS uuid; CREATE DOMAIN whole AS integer;
CREATE DOMAIN positive AS integer CHECK (VALUE > 0); CREATE DOMAIN price AS numeric(8, 1);
CREATE DOMAIN rounded AS real; CREATE DOMAIN day AS date; CREATE DOMAIN instant AS timestamptz(0);
CREATE DOMAIN second AS timestamp(0); CREATE DOMAIN digest AS bytea; CREATE DOMAIN agreed AS boolean;
CREATE DOMAIN tags AS varchar(2)[];
CREATE SCHEMA first; CREATE SCHEMA second; CREATE TABLE audit (note text);
CREATE TABLE streamops_staging (n bigint); CREATE TABLE first.streamops_staging (k text, v text);
INSERT INTO streamops_staging VALUES (666); INSERT INTO first.streamops_staging VALUES ('other', 'rows');
CREATE SERVER files FOREIGN DATA WRAPPER file_fdw;
DO $$ BEGIN CREATE ROLE app LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$; GRANT CREATE, USAGE ON SCHEMA public, first, second TO app;
CREATE FUNCTION suppress() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE FUNCTION suppress_some() RETURNS trigger LANGUAGE plpgsql AS
  'BEGIN IF hashtext(NEW::text) % 3 = 0 THEN RETURN NULL; END IF; RETURN NEW; END';
CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS
  'BEGIN INSERT INTO audit VALUES (TG_TABLE_NAME); RETURN CASE TG_OP WHEN ''DELETE'' THEN OLD ELSE NEW END; END';
CREATE FUNCTION spoil() RETURNS trigger LANGUAGE plpgsql AS
  'BEGIN NEW := jsonb_populate_record(NEW, jsonb_build_object(TG_ARGV[0], NULL)); RETURN NEW; END';
CREATE FUNCTION spoil_later() RETURNS trigger LANGUAGE plpgsql AS
  'BEGIN EXECUTE format(''UPDATE %s SET %I = NULL WHERE %I IS NOT NULL'', TG_RELID::regclass, TG_ARGV[0], TG_ARGV[0]);
   RETURN NULL; END';
CREATE FUNCTION remove_later() RETURNS trigger LANGUAGE plpgsql AS
  'BEGIN EXECUTE format(''DELETE FROM %s'', TG_RELID::regclass); RETURN NULL; END';
CREATE FUNCTION duplicate() RETURNS trigger LANGUAGE plpgsql AS
  'BEGIN IF pg_trigger_depth() = 1 THEN EXECUTE format(''INSERT INTO %s SELECT ($1).*'', TG_RELID::regclass) USING NEW;
   END IF; RETURN NULL; END'
"""
