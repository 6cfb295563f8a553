"""Offsets of a stream in the log of a server: what the checkpoint of a query stores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from streamops.kernel.errors import CheckpointError
from streamops.sources.core.outbox import format_lsn, parse_lsn
from streamops.sources.core.status import Status

_WHERE = "sources.outbox"


@dataclass(frozen=True, slots=True)
class Offset:
    """A position of the log of a server: transactions whose commit is before it were read.

    Examples
    --------
    >>> Offset("7301", 0x16B3748).to_json()
    {'system': '7301', 'lsn': '0/16B3748'}
    """

    system: str
    lsn: int

    def to_json(self) -> dict[str, Any]:
        """The offset as the checkpoint stores it."""
        return {"system": self.system, "lsn": format_lsn(self.lsn)}

    @staticmethod
    def from_json(stored: Any) -> Offset:
        """The offset of a checkpoint.

        Raises
        ------
        CheckpointError
            ``OTHER_SERVER``.
        """
        lsn = parse_lsn(stored.get("lsn")) if isinstance(stored, dict) else None
        if lsn is None or not isinstance(stored.get("system"), str):
            raise CheckpointError(
                "OTHER_SERVER",
                "the checkpoint has an offset of another source",
                where=_WHERE,
                got=stored,
                expected="the position of a log, such as {'system': '7301', 'lsn': '0/16B3748'}",
                fix="use the checkpoint of this query, or a new one",
            )
        return Offset(stored["system"], lsn)

    def check(self, status: Status, slot: str, confirmed: int) -> None:
        """Refuse to continue at this offset if rows after it may be missing.

        Raises
        ------
        CheckpointError
            ``OTHER_SERVER``, ``LOG_BEHIND``, ``SLOT_AHEAD``.
        """
        if self.system != status.system:
            raise CheckpointError(
                "OTHER_SERVER",
                "the checkpoint belongs to the log of another server, whose positions mean nothing here",
                where=_WHERE,
                got=f"server {status.system}",
                expected=f"server {self.system}, as in the checkpoint",
                fix="correct the URL. After an upgrade or a move of the database: let the query read all events "
                "of the old server first, and then use a new checkpoint and a new slot",
            )
        if self.lsn > status.flushed:
            raise CheckpointError(
                "LOG_BEHIND",
                "the log of the server ends before the position that the query has read: the server was set "
                "back, and events that the query has read may not exist there",
                where=_WHERE,
                got=f"the log ends at {format_lsn(status.flushed)}",
                expected=f"{format_lsn(self.lsn)} or later, as in the checkpoint",
                fix="compare the outbox table with what was read; create the slot again, and use a new checkpoint",
            )
        if confirmed > self.lsn:
            raise CheckpointError(
                "SLOT_AHEAD",
                f"the slot {slot!r} was advanced beyond the position that this query has read: events between "
                "them cannot be read from the slot",
                where=_WHERE,
                got=f"the slot is at {format_lsn(confirmed)}",
                expected=f"{format_lsn(self.lsn)} or before, as in the checkpoint",
                fix="use a slot for each query, and do not read from it otherwise. If the checkpoint was restored "
                "or the slot created again: read the missing events from the outbox table, if they were "
                "not deleted there, and use a new checkpoint, which begins at the slot",
            )
