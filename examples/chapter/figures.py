"""What the figures show, computed by operators. Each function asserts it before it returns its data."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from pyspark import TaskContext
from pyspark.sql import SparkSession

from examples.feed import at
from streamops import aggregates as agg
from streamops import changes, process, windows
from streamops.testing import BatchResult, fold, replay

Row = dict[str, Any]
Table = dict[Any, Any]
"""Values by key."""
HORIZON = 1_000_000
"""No change is later than this."""
SETTINGS = "spark.sql.adaptive.coalescePartitions.enabled", "spark.sql.shuffle.partitions"
"""What the first figure sets."""


class Deliveries(NamedTuple):
    """Which consumer of a group has which messages."""

    group: str
    messages: dict[int, list[int]]


def share_messages(spark: SparkSession, messages: int = 24) -> list[Deliveries]:
    """Figure 11-1: the consumers of a group share the messages of a topic; every group has all of them."""

    def handle(key: Any, rows: Iterator[Any], state: Any) -> Iterator[tuple[int]]:
        task = TaskContext.get()
        assert task is not None
        yield from ((task.partitionId(),) for _ in rows)

    coalesce, partitions = SETTINGS
    spark.conf.set(coalesce, "false")  # or a small batch has one task
    topic = spark.range(messages).withColumnRenamed("id", "message")
    groups = []
    for name, consumers in (("search index", 2), ("billing", 3)):
        # A query is a group of consumers, and its tasks are the consumers.
        spark.conf.set(partitions, consumers)
        operator = process.per_key(handle, by="message", output="consumer int")
        handled: dict[int, list[int]] = {}
        for row in topic.transform(operator.options(name=name, shards=64)).collect():
            handled.setdefault(row.consumer, []).append(row.message)
        assert len(handled) == consumers  # load balancing
        groups.append(Deliveries(name, {n: sorted(handled[n]) for n in sorted(handled)}))
    for _, handled in groups:
        assert sorted(m for part in handled.values() for m in part) == [*range(messages)]  # fan-out
    return groups


class Redelivery(NamedTuple):
    """A consumer that crashes: deliveries as (tick, consumer, message), the failed one, and what is derived."""

    deliveries: list[tuple[int, int, int]]
    failed: tuple[int, int, int]
    by_arrival: Table
    by_sequence: Table


def redeliver(crash: int = 3) -> Redelivery:
    """Figure 11-2: a message that was not acknowledged is delivered again, after those that followed it.

    Messages 3 and 4 set the price of tea. Whoever applies them as they arrive ends with the older price.
    ``changes.apply`` orders them by their sequence.
    """
    products = {1: "milk", 2: "bread", 3: "tea", 4: "tea", 5: "milk"}
    waiting, deliveries, failed = [*products], [], (0, 0, 0)
    tick = 0
    while waiting:
        tick += 1
        alive = (2, 1) if failed == (0, 0, 0) else (1,)
        given = {consumer: waiting.pop(0) for consumer in alive if waiting}
        for consumer, message in given.items():
            if message == crash and consumer == 2:
                failed = (tick, consumer, message)
                waiting.insert(0, message)
            else:
                deliveries.append((tick, consumer, message))
    order = [n for _, _, n in deliveries]
    arrived = [{"product": products[n], "n": n, "price": 100 + n} for n in order]
    by_arrival = {row["product"]: row["price"] for row in arrived}
    by_sequence = _apply([[row] for row in arrived], "product", "n", "price")
    assert sorted(order) == [*products]  # nothing is lost
    assert by_arrival == {"milk": 105, "bread": 102, "tea": 103}
    assert by_sequence == {"milk": 105, "bread": 102, "tea": 104}
    return Redelivery(deliveries, failed, by_arrival, by_sequence)


def _apply(batches: list[list[Row]], key: str, sequence: str, value: str) -> Table:
    """The table that changes amount to."""
    emitted = _replay(changes.apply(key, sequence=sequence, horizon=HORIZON), batches)
    return _folded(emitted, key, value)


def _replay(operator: Any, batches: list[list[Row]], **options: Any) -> list[BatchResult]:
    return replay(operator, batches, shards=1, **options)


def _folded(emitted: list[BatchResult], key: str, value: str) -> Table:
    return {row[key]: row[value] for row in fold(emitted, key=key)}


class Log(NamedTuple):
    """A topic of three partitions: (key, value) by offset, and the next offset of each group and partition."""

    partitions: list[list[tuple[str, int]]]
    offsets: dict[str, list[int]]
    interleavings: int


def read_log(records: int = 30, interleavings: int = 20, seed: int = 3) -> Log:
    """Figure 11-3: a log of three partitions is read from offsets; consumers do not disturb each other.

    However the partitions are interleaved, and wherever a consumer starts again from its offsets, the table
    is the same: a key has one partition, in which its order is total.
    """
    draw = random.Random(seed)
    partitions: list[list[tuple[str, int]]] = [[], [], []]
    truth: Table = {}
    for value in range(records):
        key = draw.choice("abcdef")
        partitions[ord(key) % 3].append((key, value))
        truth[key] = value
    sizes = [len(partition) for partition in partitions]
    for _ in range(interleavings):
        offsets, batches = [0, 0, 0], []
        while offsets != sizes:
            part = draw.choice([p for p in range(3) if offsets[p] < sizes[p]])
            end = min(offsets[part] + draw.randint(1, 4), sizes[part])
            span = range(offsets[part], end)
            batches.append([_record(o, *partitions[part][o]) for o in span])
            if draw.random() > 0.2:  # else the consumer dies before it records its offset
                offsets[part] = end
        assert _apply(batches, "key", "offset", "value") == truth
    slow = [size // 3 for size in sizes]
    return Log(partitions, {"fast group": sizes, "slow group": slow}, interleavings)


def _record(offset: int, key: str, value: int) -> Row:
    return {"key": key, "offset": offset, "value": value}


class Race(NamedTuple):
    """Two clients that write to two systems: times of arrival by pair, system and client, and which pairs differ."""

    begun: np.ndarray[Any, Any]
    arrived: np.ndarray[Any, Any]
    by_dual_writes: np.ndarray[Any, Any]
    by_log: np.ndarray[Any, Any]


def race(pairs: int = 10_000, seed: int = 4) -> Race:
    """Figure 11-4: two clients write to a database, then to an index, and the last writer of each wins.

    Some pairs of writes reach them in different orders, and these two disagree for ever. If the index reads the
    log of the database, it cannot.
    """
    draw = np.random.default_rng(seed)
    begun = draw.uniform(0, 10, (pairs, 2))  # milliseconds
    database = begun + draw.exponential(5, (pairs, 2))
    index = database + draw.exponential(5, (pairs, 2))
    arrived = np.stack([database, index], 1)
    last = arrived.argmax(axis=2)
    # The database logs each write at its position. The index gets the log in micro-batches, and some of it twice.
    position = np.argsort(database, axis=1).argsort(axis=1)
    log = [
        {"product": int(p), "position": int(position[p, client]), "name": client}
        for client in (0, 1)
        for p in range(pairs)
    ]
    batches = [log[: pairs + pairs // 2], log[pairs // 2 :]]
    names = _apply(batches, "product", "position", "name")
    by_log = np.array([names[product] for product in range(pairs)])
    found = Race(begun, arrived, last[:, 0] != last[:, 1], by_log != last[:, 0])
    assert found.by_dual_writes.any()
    assert not found.by_log.any()
    return found


class Followers(NamedTuple):
    """The time of each micro-batch of a follower, and how many writes of the log it has then. A write takes a second."""

    progress: dict[str, list[tuple[int, int]]]
    length: int


def follow(writes: int = 60, seed: int = 5) -> Followers:
    """Figure 11-5: the followers of a leader apply its log in order, each in its own time.

    A follower equals the leader as it was at some earlier position of the log, and in the end as it is.
    """
    draw = random.Random(seed)
    leader: Table = {}
    log: list[Row] = []
    states: list[Table] = [{}]
    for n in range(writes):
        key = draw.choice("abcdefgh")
        if key in leader and draw.random() < 0.3:
            del leader[key]
            log.append({"key": key, "n": n, "value": None, "_change_type": "delete"})
        else:
            leader[key] = n
            log.append({"key": key, "n": n, "value": n, "_change_type": "insert"})
        states.append(dict(leader))
    progress: dict[str, list[tuple[int, int]]] = {}
    for follower, every, down in (("search index", 3, range(0)), ("warehouse", 8, range(16, 40))):
        steps, batches = [(0, 0)], []
        clock = 0
        while steps[-1][1] < writes:
            clock += every
            if clock not in down:
                steps.append((clock, min(clock, writes)))
                batches.append(log[steps[-2][1] : steps[-1][1]])
        emitted = _replay(changes.apply("key", sequence="n", horizon=HORIZON), batches)
        for number, (_, position) in enumerate(steps[1:], 1):
            assert _folded(emitted[:number], "key", "value") == states[position]
        progress[follower] = steps
    return Followers(progress, writes)


class Calculus(NamedTuple):
    """The total of a table after each micro-batch, and the net change of each."""

    totals: list[int]
    net: list[int]


def integrate(batches: int = 40, seed: int = 6) -> Calculus:
    """Figure 11-6: the state is the integral of the stream of changes, and the stream the derivative of the state.

    ``fold`` integrates. ``changes.normalize`` differentiates: of complete copies of a table, it publishes
    what has changed.
    """
    draw = random.Random(seed)
    stock: Table = {}
    copies: list[Table] = []
    for _ in range(batches):
        for _ in range(draw.randint(0, 3)):
            stock[draw.choice("abcdef")] = draw.randint(0, 30)
        copies.append(dict(stock))
    differentiate = changes.normalize("item", sequence="n", horizon=HORIZON)
    published = _replay(
        differentiate,
        [
            [{"item": item, "n": n, "pieces": pieces} for item, pieces in copy.items()]
            for n, copy in enumerate(copies)
        ],
    )
    totals, net = [], []
    for number, copy in enumerate(copies):
        assert _folded(published[: number + 1], "item", "pieces") == copy
        totals.append(sum(copy.values()))
        net.append(sum(_signed(row) for row in published[number].rows))
    assert np.cumsum(net).tolist() == totals
    assert np.diff(totals, prepend=0).tolist() == net
    return Calculus(totals, net)


def _signed(row: Row) -> int:
    sign = -1 if row["_change_type"] in {"delete", "update_preimage"} else 1
    return sign * int(row["pieces"])


class Clocks(NamedTuple):
    """Requests per minute, by the minute in which they happened and by that in which they were processed."""

    by_event_time: dict[dt.datetime, int]
    by_processing_time: dict[dt.datetime, int]
    down: tuple[dt.datetime, dt.datetime]


def compare_clocks(per_minute: int = 12, seed: int = 7) -> Clocks:
    """Figure 11-7: a consumer that was down processes its backlog. By processing time, that is a spike.

    The rate of requests is steady. By event time it is steady, too.
    """
    draw = random.Random(seed)
    down = at(9, 10), at(9, 15)
    requests = []
    for minute in range(30):
        for number in range(per_minute):
            happened = at(9, minute + number / per_minute)
            processed = happened + dt.timedelta(seconds=draw.uniform(0.1, 3))
            if down[0] <= processed < down[1]:  # it reads the backlog within a minute
                processed = down[1] + (processed - down[0]) / 10
            requests.append({"happened": happened, "processed": processed})
    requests.sort(key=lambda row: row["processed"])
    rates = {}
    for time in ("happened", "processed"):
        rate = windows.tumbling(
            size="1 minute", time=time, agg={"requests": agg.count()}, delay="10 minutes"
        )
        emitted = _replay(rate, [requests], flush=True)
        rates[time] = {row["window_start"]: row["requests"] for b in emitted for row in b.rows}
    by_event, by_processing = rates["happened"], rates["processed"]
    assert set(by_event.values()) == {per_minute}
    assert max(by_processing.values()) > 3 * per_minute
    assert not any(down[0] <= minute < down[1] for minute in by_processing)
    return Clocks(by_event, by_processing, down)
