"""The operators through Spark Connect: the same frames, no JVM gateway."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.connect, pytest.mark.slow]

SESSION = """
import sys, tempfile
from pathlib import Path
from time import monotonic, sleep
from pyspark.sql import SparkSession
from streamops import aggregates as agg, observe, patterns, sketches, split_side_output, time, windows
from streamops.environment.settings import PROVIDER, ROCKSDB
from streamops.testing import assert_rows, at, fold, replay, stream
from tests.spark.pair_cores import earlier

spark = (
    SparkSession.builder.remote("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.sql.session.timeZone", "UTC")
    .config(PROVIDER, ROCKSDB)
    .getOrCreate()
)
assert not hasattr(spark, "_jsparkSession")
"""

JOB = """
script = [
    [{"k": "a", "ts": at(1)}, {"k": "b", "ts": at(2)}],
    [{"k": "a", "ts": at(40)}],
    [{"k": "a", "ts": at(5)}],
    [{"k": "b", "ts": at(95)}],
    [{"k": "b", "ts": at(6)}],
]
alarms = []
listener = observe.AlarmListener(observe.LateRows(1, batches=9), notify=alarms.append)
spark.streams.addListener(listener)
for api in ("transformWithStateInPandas", "applyInPandasWithState"):
    transform = windows.tumbling(
        "10 seconds", time="ts", by="k", agg={"n": agg.count()}, delay="5 seconds",
        stragglers="retract", allowed_lateness="30 seconds", too_late="route",
    ).options(shards=2, state_api=api)
    here, there = replay(transform, script), stream(spark, transform, script)
    for one, other in zip(here, there, strict=True):
        assert_rows(one.rows, other.rows)
        assert_rows(one.late_rows, other.late_rows)
        assert one.counts == other.counts
chain = [
    time.producers("k", time="ts", delay="5 seconds", idle="1 hour"),
    windows.tumbling("10 seconds", time="ts", by="k", agg={"n": agg.count()}).options(shards=2),
]
for one, other in zip(replay(chain, script), stream(spark, chain, script), strict=True):
    assert_rows(one.rows, other.rows)
    assert (one.counts, one.clock) == (other.counts, other.clock)
pairs = patterns.match(
    "a b", define={"a": "k = 'a'", "b": "k = 'b'"}, time="ts", within="1 hour", delay="5 seconds",
).options(shards=1)
assert [row["match_end"] for result in stream(spark, pairs, script) for row in result.rows] == [at(2)]
try:
    spark.createDataFrame(script[0]).transform(patterns.match("a", define={"a": "no = 1"}, time="ts"))
except Exception as error:
    assert error.code == "CONDITION_INVALID", error
else:
    raise AssertionError("a condition over a column that does not exist")
rows = spark.createDataFrame([("a", 1)], "k string, v int").selectExpr("k", "timestamp'2024-01-01' ts")
for engine in ("kernel", "native"):
    whole = windows.tumbling("1 day", time="ts", by="k", agg={"n": agg.count()}).options(engine=engine)
    assert rows.transform(whole).collect()[0]["n"] == 1
pair = earlier(delay=("5 seconds", "1 second"), shards=2)
meeting = [
    (script[0], [{"key": "a", "at": at(1)}]), (script[1], None), (None, [{"key": "a", "at": at(90)}]),
]
for one, other in zip(replay(pair, meeting), stream(spark, pair, meeting), strict=True):
    assert_rows(one.rows, other.rows)
    assert (one.counts, one.watermark) == (other.counts, other.watermark)
distinct = windows.running(by="k", agg={"n": agg.approx_count_distinct("ts")}).options(shards=2)
for one, other in zip(replay(distinct, script[:2]), stream(spark, distinct, script[:2]), strict=True):
    assert_rows(one.rows, other.rows)
    assert one.counts == other.counts
sketch = sketches.hll_sketch_agg("k")
stored = rows.transform(windows.tumbling("1 day", time="ts", agg={"s": sketch}))
assert stored.select(sketches.estimate("s", like=sketch).alias("n")).collect()[0]["n"]["estimate"] == 1
guarded = rows.selectExpr("'2999-01-01' ts", "ts received", "ts sent").transform(time.guard("ts").options(name="g"))
three = time.correct_clock("ts", sent="sent", received="received")
assert guarded.transform(three).collect()[0]["clock_quality"] == "no_event_time"
timeless = rows.selectExpr("k", "cast(null as timestamp) ts")
routed = windows.tumbling("1 day", time="ts", by="k", agg={"n": agg.count()}, stragglers="route")
late = split_side_output(timeless.transform(routed))[1]
account = late.transform(observe.account_late(by="k", producer="k"))
assert account.transform(observe.merge_accounts()).collect()[0]["rows"] == 1
assert account.transform(observe.lateness_needed()).collect()[0]["saved"] == 0
ahead = rows.selectExpr("k", "timestamp'2999-01-01' ts").transform(observe.furthest_ahead("ts", by="k"))
assert ahead.collect()[0]["rows"] == 1
until = monotonic() + 30
while len(alarms) < 3 and monotonic() < until:
    sleep(0.1)
spark.streams.removeListener(listener)
assert len(alarms) == len({alarm.run for alarm in alarms}) == 3
assert {(alarm.code, alarm.operator) for alarm in alarms} == {
    ("LATE_ROWS", "tumbling"), ("LATE_ROWS", "match"),
}, alarms
print("connect: ok")
"""

CHANGES = """
from streamops import changes, split_side_output

parameters = {"sequence": "lsn", "horizon": 100}
script = [
    [
        {"k": "a", "lsn": 1, "v": 1, "_change_type": "insert"},
        {"k": "b", "lsn": 2, "v": 5, "_change_type": "insert"},
        {"k": None, "lsn": 3, "v": 5, "_change_type": "insert"},
    ],
    [
        {"k": "a", "lsn": 7, "v": None, "_change_type": "delete"},
        {"k": "b", "lsn": 4, "v": 6, "_change_type": "update_postimage"},
    ],
    [
        {"k": "a", "lsn": 5, "v": 2, "_change_type": "insert"},
        {"k": "c", "lsn": 9, "v": 6, "_change_type": "insert"},
    ],
]
upserts = changes.normalize("k", **parameters)
upserts = upserts.options(shards=2, state_api="transformWithStateInPandas")
here, there = replay(upserts, script), stream(spark, upserts, script)
for one, other in zip(here, there, strict=True):
    assert_rows(one.rows, other.rows)
    assert one.counts == other.counts
published = [[row for row in result.rows if row["rejected"] is None] for result in here]
emitted = [[{n: c for n, c in row.items() if n != "rejected"} for row in rows] for rows in published]
totals = changes.aggregate(
    by="v", agg={"n": agg.count(), "least": agg.min("k")}
).options(shards=2, state_api="applyInPandasWithState")
for one, other in zip(replay(totals, emitted), stream(spark, totals, emitted), strict=True):
    assert_rows(one.rows, other.rows)
    assert one.counts == other.counts
history = changes.apply("k", history="intervals", **parameters).options(shards=2)
for one, other in zip(replay(history, script), stream(spark, history, script), strict=True):
    assert_rows(one.rows, other.rows)

columns = "k string, lsn long, v long, _change_type string"
rows = [tuple(row.values()) for batch in script for row in batch]
log = spark.createDataFrame(rows, columns)
good, rejected = split_side_output(log.transform(changes.normalize("k", **parameters)))
assert [row["reason"] for row in rejected.select("rejected.reason").collect()] == ["null_key"]
table = good.transform(changes.fold("k"))
wanted = spark.createDataFrame([("b", 6, 1), ("c", 6, 0)], "k string, v long, revision int")
changes.differences(table, wanted, key="k").raise_if_any()
steps = table.limit(0)
for batch in emitted:
    frame = spark.createDataFrame(
        [tuple(row.values()) for row in batch], "k string, v long, revision int, _change_type string"
    )
    steps = frame.transform(changes.fold("k", onto=steps))
assert changes.differences(steps, wanted.where("k = 'b'")).extra == 1
grouped = good.select("k", "v", "_change_type").transform(totals).drop("_change_type")
assert_rows(grouped.toArrow().to_pylist(), [{"v": 6, "n": 2, "least": "b"}])
rest = log.transform(changes.compact("k", sequence="lsn", retention=1))
assert sorted(row["lsn"] for row in rest.collect()) == [3, 4, 9]
try:
    good.where("_change_type <> 'insert'").transform(changes.fold("k")).count()
except Exception as error:
    assert "changes.fold" in str(error), error
else:
    raise AssertionError("a row that was not published was taken back")
print("connect: ok")
"""

FUNCTIONS_AND_QUERIES = """
from collections import namedtuple
import json
from streamops import process, search, sourcing
from tests.process.functions import quotients
from tests.sourcing.seats import change
from tests.spark import test_every_operator as every

spark.conf.set("spark.sql.shuffle.partitions", "1")
families = ("patterns", "search", "per_key", "decide", "silences")
chains = ("decide_in_a_chain", "silences_in_a_chain")  # a chain is one of per_key
cases = {n: c for n, c in every.CASES.items() if n.startswith(families) and n not in chains}
assert {"decide", "silences"} < cases.keys() and len(cases) >= 8
every.check_stream(spark, cases, Path("stream").resolve())
every.check_batch(spark, cases)

case = cases["decide"]
log = case.operator.options(shards=2, name="log")
(commands,) = every.batch_frames(spark, case)
events = commands.transform(log).where("rejection is null").select("k", "version", "type", "user")
states = {}
start = namedtuple("State", "holder")(None)
for row in sorted(map(json.loads, every.at_once(case)), key=lambda row: row["version"]):
    if row["rejection"] is None:
        event = namedtuple("Event", "type user")(row["type"], row["user"])
        version, state = states.get(row["k"], (0, start))
        states[row["k"]] = (row["version"], change(state, event))
assert max(version for version, _ in states.values()) > 2
wanted = [{"k": k, "version": n, "holder": state.holder} for k, (n, state) in states.items()]
folding = {"by": "k", "state": "holder string"}
whole = events.transform(sourcing.fold(change, **folding))
assert_rows(whole.toArrow().to_pylist(), wanted)
snapshot = events.where("version <= 2").transform(sourcing.fold(change, **folding))
later = events.where("version > 1").transform(sourcing.fold(change, snapshot=snapshot, **folding))
assert_rows(later.toArrow().to_pylist(), wanted)

rows = spark.createDataFrame([("secret", 2), ("secret", 0), ("b", 3)], "k string, v long")
good, rejected = split_side_output(rows.transform(quotients()))
assert sorted(row.quotient for row in good.collect()) == [20, 30]
assert [row.rejected.row.v for row in rejected.collect()] == [0]
try:
    rows.transform(quotients(errors="fail")).collect()
except Exception as error:
    assert "FUNCTION_RAISED" in str(error), error
    assert "ZeroDivisionError" in str(error) and "secret" not in str(error), error
else:
    raise AssertionError("an exception of a function")
searching = {"text": "k", "sequence": "lsn", "horizon": 9, "rejected": "route"}
stored = spark.createDataFrame([(1, "secret", 1), (2, "(b", 1)], "id int, query string, lsn int")
good, _, late = split_side_output(rows.transform(search.match(stored, **searching)))
assert [(row.k, row.query_id) for row in good.collect()] == [("secret", 1)] * 2
assert [row.reason for row in late.collect()] == ["invalid_query"]
for code, wrong in (
    ("COLUMN_NOT_FOUND", search.match(stored, **{**searching, "text": "title"})),
    ("STREAMING_FRAME", search.match(spark.readStream.format("rate").load(), **searching)),
    ("COLUMN_TYPE", search.match(stored, **{**searching, "text": "v"})),
    ("STREAMING_FRAME", None),
):
    try:
        if wrong is None:
            spark.readStream.format("rate").load().transform(sourcing.fold(change, **folding))
        else:
            rows.transform(wrong)
    except Exception as error:
        assert code in error.code, error
    else:
        raise AssertionError(code)
print("connect: ok")
"""

ERASURE = """
from streamops import erasure
from streamops.testing import micro_batches
from streamops.testing.streaming import run_query

table = erasure.KeyTable(url="sqlite:///keys.db", wrapping_key=lambda: b"w" * 32)
script = [[{"k": "a", "ts": at(1), "v": "x"}, {"k": "b", "ts": at(2), "v": "y"}]]
rows = spark.createDataFrame([("a", "x"), ("b", "y"), ("a", None)], "k string, v string")
parameters = {"subject": "k", "keys": table.create_keys(rows, subject="k")}
parameters["wrapping_key"] = table.wrapping_key
shred = erasure.shred("v", **parameters)
shredded = rows.transform(shred).drop("rejected")
assert dict(shredded.dtypes)["v"] == "binary"
here = sorted(map(str, shredded.transform(erasure.unshred("v", **parameters)).drop("rejected").collect()))
assert here == sorted(map(str, rows.collect())), here
streamed = micro_batches(spark, script).transform(shred).transform(
    windows.running(by=["k", "v"], agg={"n": agg.count()}).options(shards=2)
).transform(erasure.unshred({"v": "string"}, **parameters))
((_, found, _),) = run_query(streamed, Path("query"), 300)
assert sorted((row["k"], row["v"], row["n"]) for row in found.to_pylist()) == [("a", "x", 1), ("b", "y", 1)]
assert table.erase("a") == 1
parameters["keys"] = table.keys(spark)
erased = shredded.transform(erasure.unshred("v", **parameters)).where("rejected is not null")
assert [(row.k, row.v, row.rejected.reason) for row in erased.collect()] == [("a", None, "erased")]
print("connect: ok")
"""

SINKS = """
import pyarrow as pa
from pyspark.errors import StreamingQueryException
from streamops import sinks
from streamops.testing import micro_batches

script = [[{"k": f"{batch}{n}", "v": n} for n in range(5)] for batch in range(3)]
folder = Path.cwd() / "source"
checkpoint = str(Path.cwd() / "checkpoint")
table, archive = str(Path.cwd() / "table"), str(Path.cwd() / "archive")


def run(sink, checkpoint=checkpoint):
    writer = micro_batches(spark, [], schema=schema, directory=folder).writeStream.foreachBatch(sink)
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    try:
        query.awaitTermination(200)
        return query.id
    finally:
        query.stop()


def make(**options):
    url = "sqlite:///" + str(Path.cwd() / "database")
    return sinks.fan_out({
        "table": sinks.sqlalchemy(url, "events", key="k", checkpoint=checkpoint),
        "archive": sinks.parquet(archive, checkpoint=checkpoint),
    }, **options)


schema = pa.schema([("k", pa.string()), ("v", pa.int64())])
micro_batches(spark, script[:2], schema=schema, directory=folder)
query = run(make(checkpoint=checkpoint))
# A restart, whose query has the same id and another run.
micro_batches(spark, script[2:], schema=schema, directory=folder)
assert run(make(checkpoint=checkpoint)) == query
for sink in make().sinks.values():
    entry = sink.read_ledger()
    assert (entry.query, entry.batch, entry.generation) == (query, 2, 2), entry
    assert list(entry.offsets) == (Path(checkpoint) / "offsets/2").read_text().splitlines()[2:]
expected = sorted((row["k"], row["v"]) for batch in script for row in batch)
found = sinks.read_parquet(archive).to_table().to_pylist()
assert sorted((row["k"], row["v"]) for row in found) == expected
read = sinks.read_parquet(archive, spark=spark)
assert sorted(map(tuple, read.collect())) == expected
# A micro-batch that was committed, and is delivered again, is skipped.
for path in (Path(checkpoint) / "commits").glob("*2*"):
    path.unlink()
run(make(checkpoint=checkpoint))
found = sinks.read_parquet(archive).to_table().to_pylist()
assert sorted((row["k"], row["v"]) for row in found) == expected
for sink, other, code in (
    (sinks.parquet(archive), "no checkpoint", "QUERY_UNKNOWN"),
    (sinks.parquet(archive, checkpoint=str(Path.cwd() / "new")), "new", "NEW_CHECKPOINT"),
):
    try:
        run(sink, str(Path.cwd() / other))
    except StreamingQueryException as error:
        assert code in str(error), error
    else:
        raise AssertionError(code)
print("connect: ok")
"""

STATES = """
from streamops import state
from streamops.testing import micro_batches

def counts(size, shards=2):
    folder = Path.cwd() / "input"
    frame = micro_batches(spark, [[{"k": "a", "ts": at(1)}]], directory=folder)
    counted = windows.tumbling(size, time="ts", by="k", agg={"n": agg.count()}, delay="1 minute")
    return frame.transform(counted.options(shards=shards))

checkpoint = str(Path.cwd() / "checkpoint")
state.check(counts("1 minute"), checkpoint)  # there is none yet
query = (
    counts("1 minute").writeStream.option("checkpointLocation", checkpoint).format("parquet")
    .option("path", str(Path.cwd() / "out")).trigger(availableNow=True).start()
)
assert query.awaitTermination(120)
state.check(counts("1 minute"), checkpoint)
assert [row["k"] for row in state.read(checkpoint, "windows.grid", spark=spark).collect()] == ["a"]
for frame, code in ((counts("2 minutes"), "STATE_PARAMETERS"), (counts("1 minute", 3), "STATE_SHARDS")):
    try:
        state.check(frame, checkpoint)
    except Exception as error:
        assert error.code == code, error
    else:
        raise AssertionError(code)
print("connect: ok")
"""

JOBS = {
    "windows and time": JOB,
    "changes": CHANGES,
    "functions and queries": FUNCTIONS_AND_QUERIES,
    "erasure": ERASURE,
    "sinks": SINKS,
    "states": STATES,
}


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
def test_streams_and_batches_run_through_spark_connect(tmp_path: Path, job: str) -> None:
    # In a process of its own: a process has one session, and it is classic in the other tests.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SPARK_")}
    environment |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    # By this, Spark takes a port that is free: the server before may not have left its own yet.
    environment |= {"SPARK_TESTING": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(
        [str(Path(__file__).parents[2]), environment.get("PYTHONPATH", "")]
    )
    done = subprocess.run(
        [sys.executable, "-c", SESSION + job],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert "connect: ok" in done.stdout, done.stderr[-4000:]
