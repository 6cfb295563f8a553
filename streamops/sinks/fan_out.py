"""Write several targets from one micro-batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

from pyspark.sql import DataFrame

from streamops.sinks import conditions
from streamops.sinks.sink import BatchWriter, Sink
from streamops.spark.identity import Identity

__all__ = ["FanOut", "fan_out"]

_WHERE = "sinks.fan_out"


def fan_out(sinks: Mapping[str, BatchWriter], *, checkpoint: str | None = None) -> FanOut:
    """Write several targets from one micro-batch, which Spark computes once.

    Each sink has a ledger of its own. If the driver crashes between two of them, Spark delivers the
    micro-batch again: the sinks that have it skip it, and the others write it. Between the two commits,
    the targets differ by one micro-batch.

    Input        what every sink accepts
    Output       the targets of all sinks
    Output mode  append or update
    Watermark    none
    State        none in Spark
    Order        the sinks write in the order of the mapping
    Batch        ``fan_out.write(frame, query=...)``

    Parameters
    ----------
    sinks : mapping of str to sink
        The sinks by name. Each keeps its own name in the ledger of its target. A sink of other rows:
        ``sink.after(transform)``.
    checkpoint : str, optional
        The checkpoint location of the query. Only Spark Connect needs it.

    Returns
    -------
    FanOut
        For use with ``DataStreamWriter.foreachBatch``.

    Raises
    ------
    SpecError
        ``PARAMETER_TYPE``: there is no sink, or a value is not a sink.

    Examples
    --------
    >>> from streamops import sinks
    >>> daily = sinks.postgres("postgresql://host/db", "daily", key=["page", "window_start"])
    >>> audit = sinks.postgres("postgresql://host/db", "audit")
    >>> both = sinks.fan_out({"daily": daily, "audit": audit})
    >>> views.writeStream.foreachBatch(both).option("checkpointLocation", path)

    References
    ----------
    Kleppmann: "Designing Data-Intensive Applications", chapter 11, "Keeping Systems in Sync".
    """
    given: Any = sinks
    writers = list(given.values()) if isinstance(given, Mapping) else []
    if not writers or not all(isinstance(writer, BatchWriter) for writer in writers):
        raise conditions.NOT_SINKS.error(got=repr(sinks))
    return FanOut(sinks=dict(sinks), checkpoint=checkpoint)


@dataclass(frozen=True, kw_only=True, repr=False)
class FanOut(BatchWriter):
    """A function that writes micro-batches, for use with ``DataStreamWriter.foreachBatch``."""

    where = _WHERE

    sinks: dict[str, BatchWriter]

    @property
    def label(self) -> str:
        """The name of the sink in errors."""
        return _WHERE

    def _sinks(self) -> Iterator[Sink]:
        return chain.from_iterable(sink._sinks() for sink in self.sinks.values())

    def _deliver(self, batch: DataFrame, batch_id: int, identity: Identity) -> None:
        batch = batch.persist()
        try:
            for sink in self.sinks.values():
                sink._deliver(batch, batch_id, identity)
        finally:
            batch.unpersist()
