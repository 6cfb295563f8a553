"""Histories of as-of joins whose state is stored, as in :mod:`tests.golden.states`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamops.joins.core.asof import AsofCore, AsofSpec
from streamops.kernel.core import State
from streamops.testing.laws import to_rows
from tests.golden.states import FOLDER, stored
from tests.joins.core.asof_play import SECOND, bound, packed
from tests.oracles.asof import AsofOracle

Rows = list[tuple[Any, ...]]


@dataclass(frozen=True)
class History:
    """Micro-batches, and the watermark, in seconds, that each of them closed by."""

    name: str
    extra: tuple[str, ...]
    settings: dict[str, Any]
    batches: tuple[tuple[Rows, Rows, float | None], ...]

    @property
    def file(self) -> Path:
        return FOLDER / f"{self.name}.bin"

    @property
    def spec(self) -> AsofSpec:
        return bound(*self.extra, **self.settings)

    @property
    def watermark(self) -> int | None:
        last = self.batches[-1][2]
        return None if last is None else round(last * SECOND)

    def oracle(self) -> AsofOracle:
        """The oracle, after the history."""
        spec = self.spec
        oracle = AsofOracle(
            by=spec.by,
            time=spec.time,
            version=spec.version,
            sequence=spec.sequence,
            columns=tuple(spec.table.names),
            joined=spec.names.right,
            until=spec.until,
            deleted=spec.deleted,
            changes=spec.changes,
            how=spec.how,
            tolerance=spec.tolerance,
            direction=spec.direction,
            allow_exact=spec.allow_exact,
            allowed_lateness=spec.allowed_lateness,
            stragglers=spec.stragglers,
            late_versions=spec.late_versions,
            too_late=spec.too_late,
        )
        for facts, versions, mark in self.batches:
            left, right = packed(spec, facts, versions)
            oracle.step(
                to_rows(left), to_rows(right), None if mark is None else round(mark * SECOND)
            )
        return oracle

    def state(self) -> State:
        """The core's state after the history."""
        spec, state = self.spec, State.empty(AsofCore().layout(self.spec))
        for facts, versions, mark in self.batches:
            inputs = packed(spec, facts, versions)
            watermark = None if mark is None else round(mark * SECOND)
            state = AsofCore().step(spec, state, inputs, watermark).state
        return state


EARLY = [("a", 12.5, 1), ("ä", 15, None), (None, 30, 3), ("b", 31, 4)]
LATER = [("a", 24, 5), ("b", 40.000001, 6), ("", 41, 7)]
FIRST = [("a", 10, 1, "one"), ("ä", -5, 1, None), ("b", 30, 2**40, "two"), ("b", 30, 1, "less")]
SECOND_ROWS = [("a", 20, 2, "three"), ("b", 50, 1, "four"), ("", 1, 1, "five")]

HISTORIES = [
    History(
        "joins.asof-v1-ignore",
        ("until",),
        {"until": "until", "tolerance": "1 hour"},
        (
            (EARLY, [(*row, None) for row in FIRST], None),
            (LATER, [(*row, 45) for row in SECOND_ROWS], 25),
        ),
    ),
    History(
        "joins.asof-v1-retract",
        ("_change_type",),
        {
            "late_versions": "retract",
            "stragglers": "answer",
            "allowed_lateness": "20 seconds",
            "how": "inner",
        },
        (
            (EARLY, [(*row, "insert") for row in FIRST], 14),
            (LATER, [(*row, "delete") for row in SECOND_ROWS], 30),
        ),
    ),
    History(
        "joins.asof-v1-forward",
        ("_change_type",),
        {
            "direction": "forward",
            "tolerance": "8 seconds",
            "late_versions": "retract",
            "allowed_lateness": "20 seconds",
        },
        (
            (EARLY, [(*row, "insert") for row in FIRST], 14),
            (LATER, [(*row, "delete") for row in SECOND_ROWS], 30),
        ),
    ),
    History(
        "joins.asof-v1-nearest",
        ("_change_type",),
        {
            "direction": "nearest",
            "allow_exact": False,
            "tolerance": "8 seconds",
            "late_versions": "retract",
            "allowed_lateness": "20 seconds",
        },
        (
            (EARLY, [(*row, "insert") for row in FIRST], 14),
            (LATER, [(*row, "insert") for row in SECOND_ROWS], 30),
        ),
    ),
]


def files() -> dict[Path, bytes]:
    """The stored states."""
    return {of.file: stored(AsofCore, of.spec, of.state()) for of in HISTORIES}
