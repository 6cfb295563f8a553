"""What a sink finds before a query starts."""

from __future__ import annotations

from dataclasses import dataclass

from streamops.sinks.core.ledger import Entry


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
    """

    sink: str
    target: str
    creates: tuple[str, ...]
    entry: Entry | None

    def __repr__(self) -> str:
        lines = [f"{self.sink}", f"  target:      {self.target}"]
        if self.creates:
            lines.append(f"  to create:   {', '.join(self.creates)}")
        entry = (
            "none yet" if self.entry is None else f"{self.entry.batch} of query {self.entry.query}"
        )
        return "\n".join([*lines, f"  micro-batch: {entry}"])


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
