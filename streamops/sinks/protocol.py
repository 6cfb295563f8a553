"""The protocol between a sink, its ledger and its target: read, decide, commit; or begin again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import pyarrow as pa

from streamops.kernel.errors import SinkError
from streamops.sinks.core.ledger import Decision, Entry, Location
from streamops.sinks.core.net import Net
from streamops.sinks.tasks import Receipts

Content: TypeAlias = "pa.Table | Receipts"
"""A micro-batch: its rows in the memory of the driver, or what tasks have delivered."""


@dataclass(frozen=True, slots=True)
class Reduced:
    """The net effect of a micro-batch, and the columns of its rows."""

    net: Net
    names: tuple[str, ...]


class Conflict(Exception):
    """Another writer came first: read, decide and commit again.

    Parameters
    ----------
    reason : SinkError, optional
        What to raise if it happens all the time.
    """

    def __init__(self, reason: SinkError | None = None) -> None:
        super().__init__()
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Found:
    """What a ledger has.

    Parameters
    ----------
    entry : Entry, optional
        The entry of the sink.
    location : Location, optional
        The target; None if the ledger is a part of it.
    others : mapping of str to Entry
        The entries of other sinks with the same target.
    """

    entry: Entry | None
    location: Location | None = None
    others: Mapping[str, Entry] = field(default_factory=dict)


class Attempt(ABC):
    """An attempt to commit a micro-batch, and what the ledger has at its beginning."""

    found: Found

    @abstractmethod
    def write(self, decision: Decision) -> None:
        """Apply the micro-batch and the entry in one transaction of the target.

        Raises
        ------
        Conflict
            Another writer has committed since the entry was read.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedTarget:
    """A target that can be reached.

    Parameters
    ----------
    sink : str
        The name of the sink in errors.
    target : str
        What the sink writes to.
    creates : tuple of str
        What does not exist, and is created with the first micro-batch.
    entry : Entry, optional
        The entry of the sink in the ledger; None before the first micro-batch.
    has_ledger : bool
        Whether the target has a ledger.
    """

    sink: str
    target: str
    creates: tuple[str, ...]
    entry: Entry | None
    has_ledger: bool = True

    def __repr__(self) -> str:
        lines = [f"{self.sink}", f"  target:      {self.target}"]
        if self.creates:
            lines.append(f"  to create:   {', '.join(self.creates)}")
        entry = (
            "none yet" if self.entry is None else f"{self.entry.batch} of query {self.entry.query}"
        )
        if self.has_ledger:
            lines.append(f"  micro-batch: {entry}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Checked:
    """What ``check`` of a sink has found: one part per target.

    Parameters
    ----------
    targets : tuple of CheckedTarget
        In the order in which they are written.

    Examples
    --------
    >>> Checked((CheckedTarget(sink="sinks.kafka('daily')", target="topic 'daily'", creates=(), entry=None),))
    sinks.kafka('daily')
      target:      topic 'daily'
      micro-batch: none yet
    """

    targets: tuple[CheckedTarget, ...]

    def __repr__(self) -> str:
        return "\n".join(map(repr, self.targets))
