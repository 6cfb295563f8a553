"""Settings of home timelines, bound to the change stream of posts beside those who follow them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from streamops.changelog.change_types import CHANGE_TYPE

__all__ = ["TimelineSpec"]


@dataclass(frozen=True, slots=True)
class TimelineSpec:
    """Settings, with columns named as in the joined row.

    Parameters
    ----------
    where : str
        The operator, for errors.
    user : tuple of str
        Columns that say whose timeline a row is for.
    author : tuple of str
        Columns that the posts are joined on.
    key : tuple of str
        Primary key of the posts.
    ranked_by : str
        What posts are compared by; the greatest is the newest.
    cap : int
        Most posts of a timeline.
    routed : bool
        Whether rows come that are rejected changes, and go on as they are.
    input : Schema
        Columns of the posts, then those of the user, and what happens to them.
    """

    where: str
    user: tuple[str, ...]
    author: tuple[str, ...]
    key: tuple[str, ...]
    ranked_by: str
    cap: int
    routed: bool
    input: pa.Schema

    @property
    def by(self) -> tuple[str, ...]:
        """Columns that say which shard a row goes to."""
        return self.user

    @property
    def output(self) -> pa.Schema:
        """The same columns as come in."""
        return self.input

    @property
    def names(self) -> list[str]:
        """Columns of a row, by name: in which order the frame has them may change."""
        aside = {CHANGE_TYPE, *(["late"] if self.routed else [])}
        return sorted(name for name in self.input.names if name not in aside)

    @property
    def values(self) -> list[str]:
        """Columns of a row beside those of the user."""
        return [name for name in self.names if name not in self.user]

    @property
    def rows(self) -> pa.Schema:
        """The state: rows of all timelines, also of what is beyond the cap, and how often each is there."""
        columns = [(f"c.{i}", self.input.field(n).type) for i, n in enumerate(self.names)]
        return pa.schema([*columns, ("weight", pa.int64())])

    @property
    def packed(self) -> pa.Schema:
        """As the state; a weight of 0: a rejected change."""
        late = [self.input.field("late")] if self.routed else []
        return pa.schema([*self.rows, *late])

    @property
    def origins(self) -> dict[str, str]:
        """Columns of the output that hold values of one of the input."""
        return {name: name for name in self.input.names if name != CHANGE_TYPE}

    @property
    def event_time(self) -> str:
        """There is none; the column that carries what the next operator must know."""
        return CHANGE_TYPE

    @property
    def identity(self) -> Mapping[str, Any]:
        """Everything the state depends on, and what was published: that is not stored."""
        return {
            "columns": [[name, str(self.input.field(name).type)] for name in self.names],
            "user": list(self.user),
            "author": list(self.author),
            "key": list(self.key),
            "ranked_by": self.ranked_by,
            "cap": self.cap,
        }
