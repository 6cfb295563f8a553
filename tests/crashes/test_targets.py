"""The durable states of the targets themselves, without Spark: a sink repairs each of them."""

from __future__ import annotations

import functools
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from streamops.sinks.core.ledger import Decision, Delivery, Entry
from streamops.spark.identity import Identity
from tests.crashes.rollback import observed
from tests.crashes.targets import AFTER, BEFORE, TARGETS, Sqlite, Target, has_journal

pytestmark = pytest.mark.thorough

BATCHES = 4


def rows(number: int) -> pa.Table:
    count = range(400)
    return pa.table({"operator": ["a"] * len(count), "row": [f"{number} {i}" * 9 for i in count]})


def record(target: type[Target], folder: Path) -> Callable[[int, str], Path]:
    """Deliver all micro-batches, and return where the copies are."""
    live = folder / "live"
    live.mkdir()
    (sink,) = target(live).sinks()

    def copy_of(number: int, name: str) -> Path:
        return folder / str(number) / name

    def copy(number: int, name: str) -> None:
        if not copy_of(number, name).exists():
            shutil.copytree(live, copy_of(number, name))

    for number in range(BATCHES):
        copy(number, BEFORE)
        with pytest.MonkeyPatch.context() as patch:
            for owner, function, when, name in target.hooks:
                action = functools.partial(copy, number, name)
                patch.setattr(owner, function, observed(getattr(owner, function), when, action))
            sink._deliver_rows(rows(number), number, Identity("query", "run 1"))
        copy(number, AFTER)
    sink.session.close()
    return copy_of


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_a_torn_write_is_repaired(target: type[Target], tmp_path: Path) -> None:
    copy_of = record(target, tmp_path)
    expected = Counter(target(tmp_path / "live").rows())
    for number in range(BATCHES):
        for stage, name, damage in target.tear(number):
            folder = tmp_path / f"{number} {stage}"
            shutil.copytree(copy_of(number, name), folder)
            assert damage(folder, copy_of(number, BEFORE)), stage
            restarted = target(folder)
            (sink,) = restarted.sinks()
            for later in range(number, BATCHES):
                sink._deliver_rows(rows(later), later, Identity("query", "run 2"))
            sink.session.close()
            assert Counter(restarted.rows()) == expected, stage


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_a_sink_without_a_ledger_writes_a_repeated_micro_batch_twice(
    target: type[Target], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the tests would detect it."""
    copy = record(target, tmp_path)(2, AFTER)
    expected = Counter(target(copy).rows())

    def write(entry: Entry | None, delivery: Delivery, **_: object) -> Decision:
        return Decision("write", delivery.entry(1))

    monkeypatch.setattr("streamops.sinks.sink.decide", write)
    (sink,) = target(copy).sinks()
    sink._deliver_rows(rows(2), 2, Identity("query", "run 2"))
    sink.session.close()
    assert Counter(target(copy).rows()) == expected + Counter(
        ("a", row) for row in rows(2).column("row").to_pylist()
    )


def test_the_copy_in_a_transaction_has_pages_that_are_not_committed(tmp_path: Path) -> None:
    copy = record(Sqlite, tmp_path)(2, "transaction")
    before = tmp_path / "2" / BEFORE
    assert has_journal(copy)
    assert (copy / "database").read_bytes() != (before / "database").read_bytes()
