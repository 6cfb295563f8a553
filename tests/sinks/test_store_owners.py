"""What the owners of a cache and of an index configure: it is refused, or the sink keeps its promise."""

from __future__ import annotations

import itertools
import json
import uuid
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pyspark.sql import types as T

from streamops import sinks
from streamops.errors import SinkError, SpecError
from streamops.sinks.opensearch_index import missing_mapping, new_mapping
from streamops.sinks.redis import tombstones_of
from tests.servers import redis as servers
from tests.servers.opensearch import Server as OpenSearch
from tests.servers.redis import Server as Redis
from tests.sinks import planned
from tests.sinks.planned import Change

TIMES: Any = {"horizon": "2 hours", "patience": "1 second", "timeout": "20 seconds"}


def rows_of(*documents: dict[str, Any], sequence: int = 1) -> pa.RecordBatch:
    count = len(documents)
    columns = {
        "key": [row["id"] for row in documents],
        "sequence": pa.array([sequence] * count, pa.int64()),
        "change": ["insert"] * count,
        "is_text": [True] * count,
        "document": [json.dumps(row) for row in documents],
    }
    return pa.record_batch(columns)


def cache(redis: Redis, prefix: str | None = None) -> Any:
    return sinks.redis(redis.url, prefix or f"p{uuid.uuid4().hex}", key="id", **TIMES)


def index(server: OpenSearch, name: str | None = None, **given: Any) -> Any:
    return sinks.opensearch(
        server.url, name or f"i{uuid.uuid4().hex}", key="id", **{**TIMES, **given}
    )


def begin(sink: Any, schema: T.StructType | None = None) -> None:
    """What the driver does before a micro-batch with these columns."""
    with sink._client() as client:
        sink._look(client, create=True, patience=60_000_000, schema=schema)


@pytest.mark.redis
@pytest.mark.parametrize(
    "policy",
    [f"{of}-{how}" for of in ("volatile", "allkeys") for how in ("lru", "lfu", "random")]
    + ["volatile-ttl"],
)
def test_a_cache_that_evicts_keys_is_refused(redis: Redis, policy: str) -> None:
    sink = cache(redis)
    with redis.connect() as owner:
        owner.config_set("maxmemory-policy", policy)
        try:
            for act in (sink.check, lambda: planned.deliver(sink, [Change("a", 1)])):
                with pytest.raises(SinkError, match=f"TARGET_KIND.*\n.*{policy}"):
                    act()
        finally:
            owner.config_set("maxmemory-policy", "noeviction")
        assert owner.keys(f"{sink.prefix}:*") == []
    assert planned.deliver(sink, [Change("a", 1)])["written"] == 1


@pytest.mark.redis
def test_a_replica_is_not_written_to(redis: Redis) -> None:
    sink = cache(redis)
    with redis.connect() as owner:
        owner.replicaof("127.0.0.1", 1)
        owner.config_set("replica-read-only", "no")
        try:
            for act in (sink.check, lambda: planned.deliver(sink, [Change("a", 1)])):
                with pytest.raises(SinkError, match=r"TARGET_UNAVAILABLE[^$]*replica"):
                    act()
        finally:
            owner.config_set("replica-read-only", "yes")
            owner.replicaof("NO", "ONE")


@pytest.mark.redis
def test_a_user_who_may_not_run_a_command_gets_no_row_rejected(redis: Redis) -> None:
    with redis.connect() as owner:
        for rights in ("-evalsha", "-info", "-script"):
            owner.acl_setuser(
                "poor", enabled=True, passwords=["+x"], keys="*", categories=["+@all"]
            )
            owner.execute_command("ACL", "SETUSER", "poor", rights)
            sink = sinks.redis(redis.url.replace("//", "//poor:x@"), "poor", key="id", **TIMES)
            with pytest.raises(SinkError, match="TARGET_REFUSED"):
                planned.deliver(sink, [Change("a", 1)], routes=True)
        owner.acl_deluser("poor")


@pytest.mark.redis
def test_an_expiry_that_others_set_ends_with_the_next_write(redis: Redis) -> None:
    sink = cache(redis)
    planned.deliver(sink, [Change("a", 1)])
    with redis.connect() as owner:
        owner.expire(f"{sink.prefix}:a", 100)
        planned.deliver(sink, [Change("a", 2)])
        assert owner.ttl(f"{sink.prefix}:a") == -1


@pytest.mark.redis
def test_a_row_is_never_the_version_of_a_delete(redis: Redis) -> None:
    sink = cache(redis, "{shop}")
    odd = "deleted:{shop}:7"
    planned.deliver(sink, [Change("7", 1), Change(odd, 1)])
    assert planned.deliver(sink, [Change("7", 2)])["written"] == 1
    planned.deliver(sink, [Change("7", 2, True)])
    planned.deliver(sink, [Change(odd, 1, True)])
    assert planned.deliver(sink, [Change("7", 0)])["older"] == 1
    with redis.connect() as owner:
        # Where the versions of deletes were before.
        owner.set("{shop}:deleted:{shop}:8", "9")
    assert planned.deliver(sink, [Change("8", 3)])["older"] == 1
    assert planned.deliver(sink, [Change("8", 5)])["written"] == 1


@pytest.mark.redis
@pytest.mark.parametrize(
    "prefix",
    [
        "{a:b}",
        "{a",
        "a}",
        "{}",
        "{a}{b}",
        "{a}x}",
        "{a}streamops.deleted",
        "{a}streamops.deleted:b",
    ],
)
def test_a_prefix_whose_rows_could_be_versions_of_deletes_is_refused(prefix: str) -> None:
    with pytest.raises(SpecError, match="INVALID_PARAMETER"):
        sinks.redis("redis://host", prefix, key="id")


part = st.text("ab:{}$", max_size=6)
prefixes = st.one_of(
    st.text("ab:$", max_size=3), st.tuples(part, part, part).map("{%s}".join).filter(len)
)


@given(
    st.lists(st.tuples(prefixes, part), min_size=2, max_size=2, unique=True),
    st.booleans(),
)
def test_no_two_rows_and_deletes_share_a_key(
    pairs: list[tuple[str, str]], is_cluster: bool
) -> None:
    first, other = (f"{prefix}:" for prefix, _ in pairs)
    assume(first == other or not (first.startswith(other) or other.startswith(first)))
    taken: dict[str, tuple[str, str, str]] = {}
    for prefix, key in pairs:
        try:
            sinks.redis("redis://host", prefix, key="id")
        except SpecError:
            continue
        name = f"{prefix}:{key}"
        deletes = tombstones_of(name, is_cluster=is_cluster)
        for sort, found in (("row", name), ("delete", deletes[0])):
            assert taken.setdefault(found, (prefix, key, sort)) == (prefix, key, sort)
        if is_cluster:
            slot_of = pytest.importorskip("redis.crc").key_slot
            assert {slot_of(text.encode()) for text in deletes} == {slot_of(name.encode())}


@pytest.mark.redis
def test_keys_with_braces_are_written_to_a_cluster() -> None:
    texts = ["}", "a}", "{}", "a{b", "}{x}", "{{x}}", "{x}}", "}{"]
    installed = servers.program()
    if installed is None:
        pytest.skip("Redis is not installed")
    with servers.cluster(installed) as (node, *_):
        sink = sinks.redis(node.url, "a:b", key="id", topology="cluster", **TIMES)
        for deletes in (False, True):
            changes = [Change(text, 1, deletes) for text in texts]
            assert planned.deliver(sink, changes)["written"] == len(texts)
        assert planned.deliver(sink, [Change(text, 0) for text in texts])["older"] == len(texts)


@pytest.mark.redis
@pytest.mark.parametrize("value", [b'{"_version":2,"a":"\xff"}', b'{"_version":2,'], ids=repr)
def test_a_value_that_is_no_row_is_refused_for_itself(redis: Redis, value: bytes) -> None:
    sink = cache(redis)
    with redis.connect() as owner:
        owner.set(f"{sink.prefix}:a", value)
    receipt = planned.deliver(sink, [Change("a", 1), Change("b", 1)])
    assert (receipt["written"], receipt["rejected"]) == (1, 1)
    assert planned.deliver(sink, [Change("a", 2)])["written"] == 1


@pytest.mark.parametrize(
    "store", ["redis", pytest.param("opensearch", marks=pytest.mark.opensearch)]
)
@pytest.mark.redis
def test_rows_of_one_sequence_converge_in_every_order(
    store: str, request: pytest.FixtureRequest
) -> None:
    """All orders of three rows and their repetitions, in one or several writes: one row stays, the same in all."""
    server = request.getfixturevalue(store)
    documents = [
        {"id": "k", "v": value, "x": 12345678901234567890, "f": 1.5} for value in ("a", "é", None)
    ]
    found = set()
    for order in itertools.product(range(3), repeat=4):
        if len({*order}) == 3:
            sink = cache(server) if store == "redis" else index(server, "ties")
            key = "".join(map(str, order))
            begin(sink)
            for number in order:
                planned.deliver(sink, rows_of({**documents[number], "id": key}))
            if store == "redis":
                with server.connect() as reader:
                    row = json.loads(reader.get(f"{sink.prefix}:{key}"))
                del row["_version"]
            else:
                row = server.request("GET", f"/ties/_doc/{key}")["_source"]
            found.add(json.dumps({**row, "id": ""}, sort_keys=True))
            again = planned.deliver(sink, rows_of({**row}))
            assert (again["written"], again["older"]) == (1, 0)
    assert found == {json.dumps({**documents[2], "id": ""}, sort_keys=True)}


def refused(sink: Any, code: str, text: str, schema: Any = None) -> None:
    acts = [lambda: begin(sink, schema)] + ([] if schema else [sink.check])
    for act in acts:
        with pytest.raises(SinkError) as error:
            act()
        assert error.value.code == code
        assert text in error.value.got


@pytest.mark.opensearch
@pytest.mark.parametrize(
    ("body", "code", "text"),
    [
        ({"settings": {"index.default_pipeline": "p"}}, "TARGET_KIND", "default_pipeline"),
        ({"settings": {"index.final_pipeline": "p"}}, "TARGET_KIND", "final_pipeline"),
        ({"settings": {"index.blocks.write": True}}, "TARGET_REFUSED", "blocks.write"),
        ({"settings": {"index.blocks.read_only": True}}, "TARGET_REFUSED", "read_only"),
        ({"settings": {"index.gc_deletes": "1m"}}, "TARGET_KIND", "1m"),
        ({"mappings": {"_routing": {"required": True}}}, "TARGET_KIND", "routing"),
        ({"mappings": {"_source": {"enabled": False}}}, "TARGET_KIND", "_source"),
        ({"mappings": {"_source": {"excludes": ["x"]}}}, "TARGET_KIND", "_source"),
        ({"mappings": {"_source": {"includes": ["x"]}}}, "TARGET_KIND", "_source"),
    ],
)
def test_an_index_that_changes_or_loses_documents_is_refused(
    opensearch: OpenSearch, body: dict[str, Any], code: str, text: str
) -> None:
    sink = index(opensearch)
    settings = {"index.gc_deletes": "2h", **body.get("settings", {})}
    answer = opensearch.request("PUT", f"/{sink.index}", {**body, "settings": settings})
    assert answer.get("acknowledged"), answer
    refused(sink, code, text)


@pytest.mark.opensearch
def test_an_alias_is_one_index_that_takes_writes(opensearch: OpenSearch) -> None:
    plain = {"settings": {"index.gc_deletes": "2h"}}
    for name in ("one-1", "one-2", "routed-1", "closed-1"):
        opensearch.request("PUT", f"/{name}", plain)

    def alias(name: str, of: str, **options: Any) -> Any:
        action = {"add": {"index": of, "alias": name, **options}}
        opensearch.request("POST", "/_aliases", {"actions": [action]})
        return index(opensearch, name)

    sink = alias("one", "one-1")
    begin(sink)
    planned.deliver(sink, [Change("1", 1)])
    alias("one", "one-2", is_write_index=True)
    refused(sink, "TARGET_KIND", "2 indices")
    refused(alias("routed", "routed-1", routing="x"), "TARGET_KIND", "routing")
    refused(alias("closed", "closed-1", is_write_index=False), "TARGET_KIND", "take writes")
    template = {"index_patterns": ["stream*"], "data_stream": {}, "template": plain}
    opensearch.request("PUT", "/_index_template/of-streams", template)
    opensearch.request("PUT", "/_data_stream/stream", None)
    refused(index(opensearch, "stream"), "TARGET_KIND", "data stream")


@pytest.mark.opensearch
def test_a_template_of_the_owner_counts_for_a_created_index(opensearch: OpenSearch) -> None:
    settings = {"index.default_pipeline": "p"}
    template = {"index_patterns": ["owned*"], "template": {"settings": settings}}
    opensearch.request("PUT", "/_index_template/owned", template)
    with pytest.raises(SinkError, match="default_pipeline"):
        begin(index(opensearch, "owned-1"))


def schema_of(**types: T.DataType) -> T.StructType:
    return T.StructType([T.StructField(name, dtype) for name, dtype in types.items()])


TEXT, WIDE = T.StringType(), T.DecimalType(38, 0)
TYPES: dict[str, T.DataType] = {
    "id": TEXT,
    "note": TEXT,
    "x": WIDE,
    "n": T.IntegerType(),
    "big": T.LongType(),
    "f": T.DoubleType(),
    "b": T.BooleanType(),
    "d": T.DateType(),
    "at": T.TimestampType(),
    "ntz": T.TimestampNTZType(),
    "raw": T.BinaryType(),
    "tags": T.ArrayType(TEXT),
    "s": schema_of(at=T.TimestampType(), x=T.DecimalType(38, 2)),
    "m": T.MapType(TEXT, WIDE),
    "texts": T.MapType(TEXT, TEXT),
    "a.b": TEXT,
    "t": T.DayTimeIntervalType(),
}
ODD: list[tuple[str, list[Any]]] = [
    ("note", ["2026-01-31", "to be defined", "12", ""]),
    ("x", [1, 99999999999999999999, -(10**38) + 1]),
    ("n", [1, -(2**31)]),
    ("big", [0, 2**63 - 1, -(2**63)]),
    ("f", [1, 1.5, 1e308, "NaN", "Infinity", "-Infinity"]),
    ("b", [True]),
    ("d", ["2026-01-31", "0001-01-01", "9999-12-31", "+10000-01-01", "-0044-03-15"]),
    ("at", ["2026-01-31T23:59:59.000001Z", "9999-12-31T23:59:59.999999Z", "+294247-01-10T04:00:54.775807Z"]),
    ("ntz", ["2026-01-31T23:59:59.000001", "+10000-01-01T00:00:00.000000"]),
    ("raw", ["", "AP8="]),
    ("tags", [[], ["2026-01-31", "x", None]]),
    ("s", [{"at": "2026-01-31T23:59:59.000001Z", "x": 1}, {"at": None, "x": 12345678901234567890.5}]),
    ("m", [{"k": 1}, {"k": 99999999999999999999, "2026": 1}]),
    ("texts", [{"k": "2026-01-31"}, {"k": "x"}]),
    ("a.b", ["2026-01-31", "y"]),
    ("t", ["INTERVAL '1 02:03:04.5' DAY TO SECOND"]),
]  # fmt: skip


@pytest.mark.opensearch
@pytest.mark.parametrize("made_by", ["the sink", "its owner, empty", "its owner, with a column"])
def test_the_types_of_the_columns_and_not_the_first_row_decide(
    opensearch: OpenSearch, made_by: str
) -> None:
    sink = index(opensearch)
    if made_by != "the sink":
        body: dict[str, Any] = {"settings": {"index.gc_deletes": "2h"}}
        if "column" in made_by:
            body["mappings"] = {
                "properties": {"note": {"type": "keyword"}, "s": {"properties": {}}}
            }
        opensearch.request("PUT", f"/{sink.index}", body)
    begin(sink, schema_of(**TYPES))
    documents = [
        {"id": f"{name} {number}", name: value}
        for name, values in ODD
        for number, value in enumerate(values)
    ]
    for row in documents:
        found = planned.deliver(sink, rows_of(row))
        assert (found["written"], found["reasons"]) == (1, []), row
    stored = {key: hit["_source"] for key, hit in opensearch.documents(sink.index).items()}
    assert stored == {row["id"]: row for row in documents}
    begin(sink, schema_of(**TYPES, later=TEXT))
    for number, value in enumerate(["2026-01-31", "z"]):
        assert planned.deliver(sink, rows_of({"id": f"{number}", "later": value}))["written"] == 1


@pytest.mark.opensearch
def test_the_mapping_of_the_owner_decides(opensearch: OpenSearch) -> None:
    strict = index(opensearch)
    body: dict[str, Any] = {
        "settings": {"index.gc_deletes": "2h"},
        "mappings": {"dynamic": "strict"},
    }
    opensearch.request("PUT", f"/{strict.index}", body)
    refused(strict, "TARGET_COLUMNS", "id", schema=schema_of(id=TEXT))
    for mappings in (
        {"dynamic": False},
        {"dynamic_templates": [{"words": {"match_mapping_type": "string", "mapping": {"type": "keyword"}}}]},
    ):  # fmt: skip
        sink = index(opensearch)
        opensearch.request("PUT", f"/{sink.index}", {**body, "mappings": mappings})
        begin(sink, schema_of(id=TEXT, v=TEXT))
        assert planned.deliver(sink, rows_of({"id": "1", "v": "x"}))["written"] == 1
        found = opensearch.request("GET", f"/{sink.index}")[sink.index]["mappings"]
        texts = {"id": {"type": "keyword"}, "v": {"type": "keyword"}}
        assert found.get("properties", texts) == texts


def test_a_mapping_that_is_complete_is_not_changed() -> None:
    schema = schema_of(**TYPES)
    found = new_mapping(schema)
    assert missing_mapping({**found, "dynamic": "true"}, schema) == {}
    assert found["date_detection"] is False


@pytest.mark.opensearch
def test_what_a_search_finds_is_the_choice_of_the_owner(opensearch: OpenSearch) -> None:
    sink = index(opensearch)
    fields = {
        "note": {"type": "keyword", "ignore_above": 3, "copy_to": "all"},
        "n": {"type": "integer", "ignore_malformed": True},
        "word": {"type": "keyword", "normalizer": "lower"},
    }
    lower = {"normalizer": {"lower": {"type": "custom", "filter": ["lowercase"]}}}
    settings = {"index.gc_deletes": "2h", "number_of_replicas": 1, "refresh_interval": "-1"}
    body = {"settings": {**settings, "analysis": lower}, "mappings": {"properties": fields}}
    assert opensearch.request("PUT", f"/{sink.index}", body).get("acknowledged")
    begin(sink, schema_of(id=TEXT, note=TEXT, n=TEXT, word=TEXT))
    row = {"id": "1", "note": "longer than three", "n": "no number", "word": "UPPER"}
    assert planned.deliver(sink, rows_of(row))["written"] == 1
    assert opensearch.request("GET", f"/{sink.index}/_doc/1")["_source"] == row
