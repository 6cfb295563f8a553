"""Deliver micro-batches as the tasks of Spark do, in this process: with no driver's rows, and attempts that fail."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from streamops.kernel.columns import key_codes
from streamops.kernel.errors import located
from streamops.sinks.core.net import digest
from streamops.sinks.sink import Sink, unavailable
from streamops.sinks.tasks import (
    Exchange,
    Part,
    Receipts,
    deliver_nothing,
    from_bytes,
    to_bytes,
)
from streamops.spark.identity import Identity

TASKS = 3


def deliver(sink: Any, rows: pa.Table, batch: int, identity: Identity) -> None:
    """Write a micro-batch by tasks, each of which was attempted before and has lost its receipt."""
    with located(sink.label), sink.session.exclusive():
        if not sink._is_possible(rows.schema):
            sink._accept(rows, batch, identity)
            return
        try:
            receipts = run(sink, rows, batch, identity)
        except (
            OSError
        ) as error:  # a task whose files were removed; Spark fails the query in the end
            raise unavailable("the table", error) from error
        sink._accept(receipts, batch, identity)


def run(sink: Sink, rows: pa.Table, batch: int, identity: Identity) -> Receipts:
    """Let tasks deliver the rows, as `Sink._receive` does."""
    delivery = sink._delivery(rows.schema.empty_table(), batch, identity)
    action = sink._foresee(rows.schema, delivery)
    function: Any = deliver_nothing
    if action != "skip":
        function = sink._prepare(rows.schema, batch, action)
    parts: list[Part] = []
    names = sink._together(rows.schema) or ()
    codes = key_codes([rows.column(n) for n in names], len(rows)) % TASKS
    if not names:
        codes = np.arange(len(rows)) % TASKS
    for task in range(TASKS):
        mine = rows.filter(pa.array(codes == task))
        if len(mine):
            list(function(pieces(mine)))
            parts += json.loads(json.dumps(list(function(pieces(mine)))))
    return Receipts(rows.schema, len(rows), rows.nbytes, digest(rows), tuple(parts), exchange)


def pieces(rows: pa.Table) -> Iterator[pa.Table]:
    """The rows, a few at a time."""
    return (rows.slice(start, 2) for start in range(0, len(rows), 2))


def exchange(tasks: Exchange) -> list[Part]:
    """Run the tasks of an exchange."""
    sent = chain.from_iterable(map(tasks.send, range(tasks.items)))
    forwarded = chain.from_iterable(tasks.forward(to, iter(rows)) for to, rows in inboxes(sent))
    found = (tasks.finish(to, iter(rows)) for to, rows in inboxes(forwarded))
    return [json.loads(json.dumps(part)) for part in chain.from_iterable(found)]


def inboxes(messages: Any) -> list[tuple[int, list[pa.Table]]]:
    """The messages by addressee."""
    found: dict[int, list[pa.Table]] = defaultdict(list)
    for addressee, rows in messages:
        found[addressee].append(from_bytes(to_bytes(rows)))
    return sorted(found.items())
