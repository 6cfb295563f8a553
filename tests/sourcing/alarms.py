"""Alarms that are decided from results of windows. Workers import this module."""

from __future__ import annotations

from typing import Any

from streamops import sourcing
from streamops.spark.operator import Operator

HIGH = 2


def judge(state: Any, window: Any) -> Any:
    """An alarm is raised by a window with many rows, and cleared by one with few."""
    is_high = window.n > HIGH
    if is_high == (state.since is not None):
        return []
    return [("raised" if is_high else "cleared", window.n)]


def follow(state: Any, event: Any) -> Any:
    """Since when there is an alarm: the number of rows in that window."""
    return state._replace(since=event.n if event.type == "raised" else None)


def alarms(**parameters: Any) -> Operator:
    """The operator: one window of a key is one command."""
    return sourcing.decide(
        judge,
        follow,
        by="k",
        command_id="window_start",
        time="window_end",
        state="since bigint",
        event="type string, n bigint",
        **parameters,
    )
