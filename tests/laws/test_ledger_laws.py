"""Whatever crashes, restarts and is restored: a target has every micro-batch once, or it is refused with an error.

The model has a target with an entry, a checkpoint that counts committed micro-batches, and drivers that
deliver. A driver may crash before the target commits or between the commits of target and checkpoint, may
live on after a newer one has started, and target and checkpoint may be restored from older copies.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamops.errors import SinkError
from streamops.sinks.core.ledger import Delivery, Entry, NewCheckpoint, decide

pytestmark = pytest.mark.laws

RESTORED = {"BATCH_GAP", "CHECKPOINT_BEHIND", "LEDGER_LOST"}


@dataclass
class Target:
    entry: Entry | None = None
    applied: tuple[tuple[str, int], ...] = ()  # query and micro-batch


@dataclass
class Driver:
    query: str
    run: str
    has_delivered: bool = False


@dataclass
class World:
    target: Target = field(default_factory=Target)
    committed: dict[str, int] = field(default_factory=dict)  # micro-batches per checkpoint
    drivers: list[Driver] = field(default_factory=list)
    copies: list[tuple[Target, dict[str, int]]] = field(default_factory=list)
    is_restored: bool = False
    refused: list[str] = field(default_factory=list)

    def deliver(self, number: int, crash: str, policy: NewCheckpoint) -> None:
        driver = self.drivers[number % len(self.drivers)]
        batch = self.committed.get(driver.query, 0)
        delivery = Delivery(driver.query, driver.run, batch, 1, batch, not driver.has_delivered)
        try:
            decision = decide(self.target.entry, delivery, new_checkpoint=policy)
        except SinkError as error:
            self.refused.append(error.code)
            self.drivers.remove(driver)
            return
        if crash == "before the target":
            self.drivers.remove(driver)
            return
        applied = () if decision.action == "replace" else self.target.applied
        if decision.action != "skip":
            applied = (*applied, (driver.query, batch))
        self.target = Target(decision.entry, applied)
        driver.has_delivered = True
        if crash == "before the checkpoint":
            self.drivers.remove(driver)
        else:
            self.committed[driver.query] = max(batch + 1, self.committed.get(driver.query, 0))


@given(data=st.data(), policy=st.sampled_from(["refuse", "continue", "replace"]))
def test_every_micro_batch_is_applied_once(data: st.DataObject, policy: NewCheckpoint) -> None:
    world, runs = World(), 0
    for _ in range(data.draw(st.integers(1, 40))):
        events = ["deliver"] * 6 + ["start", "new checkpoint", "copy", "restore both"]
        events += ["restore target", "restore checkpoint"]
        event = data.draw(st.sampled_from(events))
        if event == "deliver" and world.drivers:
            crashes = st.sampled_from(
                ["none", "none", "before the target", "before the checkpoint"]
            )
            world.deliver(data.draw(st.integers(0, 9)), data.draw(crashes), policy)
        elif event == "copy":
            world.copies.append((world.target, dict(world.committed)))
        elif event.startswith("restore") and world.copies:
            target, committed = data.draw(st.sampled_from(world.copies))
            world.is_restored = True
            if event != "restore checkpoint":
                world.target = target
            if event != "restore target":
                world.committed = dict(committed)
                world.drivers = []  # a checkpoint is restored while no query runs
        else:
            runs += 1
            query = f"query {runs if event == 'new checkpoint' else 0}"
            world.drivers.append(Driver(query, f"run {runs}"))
        applied = world.target.applied
        assert len(set(applied)) == len(applied), applied
        assert world.is_restored or not RESTORED.intersection(world.refused)
        for query in {name for name, _ in applied}:
            batches = [batch for name, batch in applied if name == query]
            assert batches == list(range(batches[0], batches[0] + len(batches)))
            # Only with "continue" does a sink start in the middle of a query.
            assert batches[0] == 0 or policy == "continue"
        if policy == "refuse":
            assert len({query for query, _ in applied}) <= 1
