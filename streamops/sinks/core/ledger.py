"""The ledger of a sink: which micro-batch the target has, and who may write the next one.

A target stores one entry per sink, and commits it together with the rows. What to do with a micro-batch
follows from the entry and from the delivery alone:

==================  ===========================================  =====================================
entry in target     delivery                                     decision
==================  ===========================================  =====================================
none                batch 0                                      write
none                a later batch                                ``LEDGER_LOST``, or write ("continue")
of this query       the next batch, same run or a new one        write
of this query       the same batch, same run or a new one        skip, or ``BATCH_DIFFERS``
of this query       any, of a run that another one replaced      ``FENCED``
of this query       a batch after the next one                   ``BATCH_GAP``
of this query       a batch before the last one                  ``CHECKPOINT_BEHIND``
of another query    batch 0 of a new run                         ``NEW_CHECKPOINT``, write, or replace
of another query    any other, also of a former query            ``FENCED``
of another target   any                                          ``LEDGER_OTHER_TARGET``
of a target that    any                                          ``TARGET_RECREATED``, or write
was created again
==================  ===========================================  =====================================

An entry belongs to one target. If the target has another entry, under another name of a sink:

==================  ===========================================  =====================================
of this query, of   the first one under this name                ``LEDGER_OTHER_NAME``, or write ("continue")
a run before
of another query    one that would empty the target              ``TARGET_SHARED``
of another query    any other                                    as above
==================  ===========================================  =====================================

A *run* is one start of a query. The first delivery of a run takes the sink over and increments the
generation. From then on, deliveries of older runs are refused: their driver was declared dead, but still
runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from streamops.kernel.errors import SinkError
from streamops.sinks import conditions

Action = Literal["write", "skip", "replace"]
NewCheckpoint = Literal["refuse", "continue", "replace"]
Repeated = Literal["fail", "skip"]


@dataclass(frozen=True, slots=True)
class Location:
    """Which target a sink writes to.

    Parameters
    ----------
    name : str
        The full name, such as that of a table with its schema.
    id : str
        What another target of this name does not have, such as the oid of a table. Empty: there is no target.
    is_empty : bool
        Whether the target is known to have no row, although a sink that never deletes has written some.
    """

    name: str
    id: str
    is_empty: bool = False


@dataclass(frozen=True, slots=True)
class Entry:
    """What a target knows about the last micro-batch that it committed.

    Parameters
    ----------
    query : str
        Identifier of the query, as in the metadata of its checkpoint.
    generation : int
        How many runs have written to this sink, starting at 1.
    run : str
        Identifier of the run that wrote last.
    batch : int
        The last micro-batch.
    rows, digest : int
        The number of its rows, and a sum over the digests of them.
    target, target_id : str
        The name and the id of its :class:`Location`. Empty where the ledger is a part of the target.
    former : tuple of str
        Queries that wrote before this one. They never write again, not even their first micro-batch, which
        they may repeat after a crash.
    offsets : tuple of str
        Where each source of the query is after the micro-batch, in Spark's JSON. Empty if that is not known.
    """

    query: str
    generation: int
    run: str
    batch: int
    rows: int
    digest: int
    target: str = ""
    target_id: str = ""
    former: tuple[str, ...] = ()
    offsets: tuple[str, ...] = ()

    def at(self, location: Location) -> Entry:
        """The entry, of a sink that writes to this target."""
        return replace(self, target=location.name, target_id=location.id)

    @classmethod
    def of(cls, *values: Any) -> Entry:
        """The entry of these values, which may have lists instead of tuples."""
        found: list[Any] = [tuple(of) if isinstance(of, list) else of for of in values]
        return cls(*found)


@dataclass(frozen=True, slots=True)
class Delivery:
    """A micro-batch that a run wants to write.

    Parameters
    ----------
    query, run, batch, rows, digest, offsets
        As in :class:`Entry`.
    is_first : bool
        Whether this process has not delivered for this run yet.
    former_digest : int, optional
        What an entry of an earlier version has as its digest. No other rows have it as theirs.
    """

    query: str
    run: str
    batch: int
    rows: int
    digest: int
    is_first: bool
    offsets: tuple[str, ...] = ()
    former_digest: int | None = None

    def is_of(self, entry: Entry) -> bool:
        """Whether an entry is of this micro-batch of this query."""
        return (entry.query, entry.batch) == (self.query, self.batch)

    def entry(self, generation: int, former: tuple[str, ...] = ()) -> Entry:
        """The entry after this micro-batch."""
        values = self.query, generation, self.run, self.batch, self.rows, self.digest
        return Entry(*values, former=former, offsets=self.offsets)


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do with a delivery, and the entry to commit with it."""

    action: Action
    entry: Entry


def decide(
    entry: Entry | None,
    delivery: Delivery,
    *,
    location: Location | None = None,
    others: Mapping[str, Entry] | None = None,
    new_checkpoint: NewCheckpoint = "refuse",
    repeated: Repeated = "fail",
) -> Decision:
    """Decide whether to write a micro-batch, to skip it, or to empty the target before.

    Parameters
    ----------
    entry : Entry, optional
        The entry of the sink in the target.
    delivery : Delivery
        The micro-batch.
    location : Location, optional
        The target. None if the ledger is a part of it.
    others : mapping of str to Entry, optional
        The entries of the same target, or of one that had its name, under other names.
    new_checkpoint : "refuse", "continue" or "replace"
        What a query with another checkpoint may do.
    repeated : "fail" or "skip"
        What happens to a repeated micro-batch with other rows.

    Raises
    ------
    SinkError
        See the table of the module.

    Examples
    --------
    >>> first = Delivery("query", "run 1", 0, rows=2, digest=7, is_first=True)
    >>> done = decide(None, first)
    >>> done.action, done.entry.generation
    ('write', 1)
    >>> again = Delivery("query", "run 2", 0, rows=2, digest=7, is_first=True)
    >>> repeated = decide(done.entry, again)
    >>> repeated.action, repeated.entry.generation
    ('skip', 2)
    """
    found = others or {}
    got = f"micro-batch {delivery.batch} of query {delivery.query}"
    if entry is None:
        for name, other in found.items():
            # Sinks of one fan-out may share a target. They write in the same run, one after the other.
            is_former = other.query == delivery.query and other.run != delivery.run
            goes_on = delivery.batch in (other.batch, other.batch + 1)
            if is_former and goes_on and new_checkpoint != "continue":
                raise conditions.LEDGER_OTHER_NAME.error(other=name, got=got)
        if delivery.batch and new_checkpoint != "continue":
            raise conditions.LEDGER_LOST.error(got=got)
        return Decision("write", delivery.entry(1))
    if location is not None:
        is_new = new_checkpoint == "replace" and entry.query != delivery.query
        require_location(entry, location, accepts=is_new or new_checkpoint == "continue")
    generation = entry.generation + (delivery.run != entry.run)
    if entry.query != delivery.query:
        if not delivery.is_first or delivery.batch or delivery.query in entry.former:
            raise fenced(entry, delivery)
        if new_checkpoint == "refuse":
            raise conditions.NEW_CHECKPOINT.error(query=entry.query, batch=entry.batch, got=got)
        action: Action = "write" if new_checkpoint == "continue" else "replace"
        shared = [n for n in found if location is None or found[n].target_id == location.id]
        if action == "replace" and shared:
            raise conditions.TARGET_SHARED.error(
                others=", ".join(map(repr, shared)), got=f'new_checkpoint="replace", {got}'
            )
        return Decision(action, delivery.entry(generation, (*entry.former, entry.query)))
    if entry.run != delivery.run and not delivery.is_first:
        raise fenced(entry, delivery)
    if delivery.batch > entry.batch + 1:
        raise conditions.BATCH_GAP.error(batch=entry.batch + 1, got=got)
    if delivery.batch < entry.batch:
        raise conditions.CHECKPOINT_BEHIND.error(
            batch=entry.batch, next_batch=entry.batch + 1, got=got
        )
    if delivery.batch == entry.batch + 1:
        return Decision("write", delivery.entry(generation, entry.former))
    is_same = entry.rows == delivery.rows and entry.digest in (
        delivery.digest,
        delivery.former_digest,
    )
    if repeated == "fail" and not is_same:
        raise conditions.BATCH_DIFFERS.error(
            rows=entry.rows,
            digest=entry.digest,
            got=f"micro-batch {delivery.batch} with {delivery.rows} rows and digest {delivery.digest}",
        )
    # The entry keeps the rows and the digest of what the target has.
    offsets = delivery.offsets or entry.offsets
    return Decision(
        "skip", replace(entry, run=delivery.run, generation=generation, offsets=offsets)
    )


def require_location(entry: Entry, location: Location, *, accepts: bool = False) -> None:
    """Refuse an entry of another target.

    Parameters
    ----------
    entry : Entry
        The entry of the sink.
    location : Location
        The target of the sink.
    accepts : bool
        Whether a target that was created again or emptied is accepted.

    Raises
    ------
    SinkError
        ``LEDGER_OTHER_TARGET``, ``TARGET_RECREATED``.
    """
    is_same = location.id == entry.target_id != ""
    if not is_same and location.name != entry.target:
        raise conditions.LEDGER_OTHER_TARGET.error(
            target=entry.target,
            batch=entry.batch,
            query=entry.query,
            got=f"the target {location.name}",
        )
    is_emptied = location.is_empty and entry.rows > 0
    if accepts or (is_same and not is_emptied):
        return
    state = "has no rows" if location.id else "does not exist"
    raise conditions.TARGET_RECREATED.error(
        batch=entry.batch,
        query=entry.query,
        got=f"{location.name}, which {state if is_emptied or not location.id else 'is another one'}",
    )


def fenced(entry: Entry | None, delivery: Delivery) -> SinkError:
    """The error about a delivery of a run that another one has replaced."""
    newer = "the newer run, which has not committed a micro-batch yet"
    if entry is not None and (entry.query, entry.run) != (delivery.query, delivery.run):
        newer = f"run {entry.run} of query {entry.query}, generation {entry.generation}"
    return conditions.FENCED.error(
        expected=newer,
        got=f"run {delivery.run} of query {delivery.query}, micro-batch {delivery.batch}",
    )
