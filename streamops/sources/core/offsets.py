"""Offsets of a stream in the log of a server: what the checkpoint of a query stores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from streamops.sources import conditions
from streamops.sources.core.outbox import format_lsn, parse_lsn
from streamops.sources.core.status import Status


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
            raise conditions.OFFSET_UNREADABLE.error(got=stored)
        return Offset(stored["system"], lsn)

    def check(self, status: Status, slot: str, confirmed: int) -> None:
        """Refuse to continue at this offset if rows after it may be missing.

        Raises
        ------
        CheckpointError
            ``OTHER_SERVER``, ``LOG_BEHIND``, ``SLOT_AHEAD``.
        """
        if self.system != status.system:
            raise conditions.OTHER_SERVER.error(system=self.system, got=f"server {status.system}")
        if self.lsn > status.flushed:
            raise conditions.LOG_BEHIND.error(
                lsn=format_lsn(self.lsn), got=f"the log ends at {format_lsn(status.flushed)}"
            )
        if confirmed > self.lsn:
            raise conditions.SLOT_AHEAD.error(
                slot=slot, lsn=format_lsn(self.lsn), got=f"the slot is at {format_lsn(confirmed)}"
            )
