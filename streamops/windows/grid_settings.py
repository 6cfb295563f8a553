"""What a user says about windows on any grid, validated once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from streamops.kernel.contract import Summary
from streamops.kernel.errors import SpecError
from streamops.kernel.groups import Groups
from streamops.kernel.time import Duration, format_duration, parse_duration
from streamops.spark.parameters import show_duration
from streamops.spark.transform import require_choice
from streamops.windows.core.spec import Empty
from streamops.windows.settings import IN_WORDS, WindowSettings

__all__ = ["MOST_WINDOWS", "GridWindows", "refuse_many"]

MOST_WINDOWS = 10_000


@dataclass(frozen=True, slots=True)
class GridWindows(WindowSettings):
    """What windows on a grid have in common; durations in microseconds."""

    empty: Empty
    empty_for: int | None = field(metadata=IN_WORDS)

    @staticmethod
    def said(
        where: str, *, empty: Empty = "skip", empty_for: Duration | None = None, **said: Any
    ) -> dict[str, Any]:
        """The fields, as the user wrote them, normalised; or an error."""
        common = WindowSettings.said(where, **said)
        require_choice(empty, Empty, parameter="empty", where=where)
        until = None
        if empty_for is not None:
            until = parse_duration(empty_for, parameter="empty_for", where=where, minimum=1)
        return {**common, "empty": empty, "empty_for": until}

    def bound(self, schema: pa.Schema, carried: int | None) -> dict[str, Any]:
        """The common fields of a spec over these columns."""
        common = WindowSettings.bound(self, schema, carried)
        if self.empty_for is not None:
            for name, said, summary in common["aggregates"]:
                self._refuse_unless_of_nothing(name, said, summary, common["input"])
        return {**common, "empty_for": self.empty_for}

    def refuse_silence(self, pace: int, said: str) -> None:
        """Refuse what cannot be meant of empty windows, which end at this pace, so said."""
        if self.empty == "publish" and self.empty_for is None:
            raise SpecError(
                "EMPTY_WITHOUT_BOUND",
                "without a bound, a key would have empty windows for ever after its last row",
                where=self.where,
                got="empty='publish' without empty_for",
                expected="empty_for beside it",
                fix='empty_for="1 day", say: how long after a window with rows it has empty ones',
            )
        if self.empty_for is None:
            return
        got = f"empty_for={show_duration(self.empty_for)}"
        if self.empty == "skip":
            raise SpecError(
                "EMPTY_FOR_WITHOUT_EMPTY",
                "`empty_for` says how long empty windows are published, and none are",
                where=self.where,
                got=f"{got} with empty='skip'",
                expected="empty='publish' beside it",
                fix="write empty='publish', or leave empty_for out",
            )
        if self.empty_for < pace:
            raise SpecError(
                "EMPTY_FOR_TOO_SHORT",
                "no empty window ends so soon after a window with rows",
                where=self.where,
                got=f"{got}, {said}",
                expected=f"at least {format_duration(pace)}",
                fix="lengthen empty_for, or leave it and empty='publish' out",
            )
        windows = self.most_empty(self.empty_for, pace)
        if windows > MOST_WINDOWS:
            raise SpecError(
                "TOO_MANY_WINDOWS",
                "each key would have too many empty windows after its last row, each of them a result",
                where=self.where,
                got=f"{got}, {said}: {windows:,} windows",
                expected=f"at most {MOST_WINDOWS:,} empty windows after one with rows",
                fix="shorten empty_for, or take longer windows",
            )

    def most_empty(self, empty_for: int, pace: int) -> int:
        """How many windows can end within this time after one with rows has."""
        return empty_for // pace

    def _refuse_unless_of_nothing(
        self, name: str, said: str, summary: Summary, columns: pa.Schema
    ) -> None:
        """Refuse an aggregate of a user's own that has no value without rows."""
        groups, cause = Groups(np.empty(0, np.int64), 1), None
        try:
            values = summary.estimate(summary.update(groups, columns.empty_table()))
            got = None if len(values) == 1 else f"{len(values)} values"
        except Exception as error:  # whatever it is: the user's code says it
            got, cause = f"{type(error).__name__}: {error}", error
        if got is not None:
            raise SpecError(
                "NO_VALUE_OF_NOTHING",
                f"{name!r} has no value for a window without rows",
                where=self.where,
                got=f"{said} over no rows: {got}",
                expected="a state for a group without rows, and its estimate, such as null",
                fix="return one entry per group, rows or not (docs/aggregates.md), or empty='skip'",
            ) from cause


def refuse_many(windows: int, parameter: str, got: str, where: str) -> None:
    """Refuse more windows for an event than anybody wants results."""
    if windows > MOST_WINDOWS:
        raise SpecError(
            "TOO_MANY_WINDOWS",
            "each event would lie in too many windows, each of them a result",
            where=where,
            got=f"{got}: {windows:,} windows",
            expected=f"at most {MOST_WINDOWS:,} windows for an event: ceil(size / {parameter})",
            fix=f"lengthen {parameter}: a result for every event is another operator than this one",
        )
