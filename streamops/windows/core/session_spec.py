"""Spec of session windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Self

import pyarrow as pa

from streamops.kernel.core import Identity
from streamops.kernel.operator import checkpointed
from streamops.kernel.parameters import refuse_type, require_choice, show_duration
from streamops.kernel.time import BEFORE_ALL
from streamops.windows import conditions
from streamops.windows.core.spec import DURATION, Stragglers, WindowSpec

WhenLonger = Literal["split", "fail"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSpec(WindowSpec):
    """Session windows.

    Parameters
    ----------
    gap : int
        Inactivity that ends a session; the maximum gap of a row with `gap_column`.
    gap_column : str, optional
        Column with the gap of each row.
    until : str, optional
        Boolean column: true for a row that closes its session.
    max_length : int, optional
        Maximum length of a session.
    when_longer : str
        Whether a longer session is split, or the query fails.
    settled : int
        Sessions that end up to here left the state before `gap` was raised: rows up to here are too late.
    """

    gap: int = checkpointed(metadata=DURATION)
    gap_column: str | None = checkpointed()
    until: str | None = checkpointed()
    max_length: int | None = checkpointed(metadata=DURATION)
    when_longer: WhenLonger = checkpointed()
    settled: int = field(default=BEFORE_ALL, repr=False)

    def __post_init__(self) -> None:
        if str(self.stragglers) == "update":
            raise conditions.UPDATE_CANNOT_MERGE.error(got="stragglers='update'")
        require_choice(self.stragglers, Stragglers, parameter="stragglers")
        self._refuse_lengths()
        self.refuse_contradictions()

    def resolve(
        self, schemas: Sequence[pa.Schema], *, carried: Sequence[int | None], shards: int
    ) -> Self:
        """Resolve the parameters, and check the types of `gap_column` and `until`."""
        resolved = WindowSpec.resolve(self, schemas, carried=carried, shards=shards)
        (schema,) = schemas
        gap = self.gap_column
        if gap is not None and schema.field(gap).type != pa.duration("us"):
            refuse_type(conditions.GAP_TYPE, schema, gap)
        if self.until is not None and not pa.types.is_boolean(schema.field(self.until).type):
            refuse_type(conditions.UNTIL_TYPE, schema, self.until)
        return resolved

    @property
    def extra_columns(self) -> dict[str, str]:
        """Further columns that the operator reads, by the parameter that names them."""
        columns = {"gap_column": self.gap_column, "until": self.until}
        return {parameter: name for parameter, name in columns.items() if name is not None}

    @property
    def cuts(self) -> bool:
        """Whether a closing row or the maximum length can split a session."""
        return self.until is not None or self.max_length is not None

    @property
    def lag(self) -> int:
        """How far Spark's watermark must lie behind the operator's own.

        A closing row can end its session up to one gap behind the watermark.
        """
        return self.allowed_lateness + (self.gap if self.until is not None else 0)

    def lag_of(self, identity: Identity) -> int:
        """The lag of an operator with this identity."""
        of_gap: int = identity["gap"] if identity["until"] is not None else 0
        return super(SessionSpec, self).lag_of(identity) + of_gap

    @property
    def retracts(self) -> bool:
        """Whether the output is a change stream: a session that is extended replaces another one."""
        return self.revises

    @property
    def retention(self) -> int:
        """How long after its end an accepted row can still touch a session."""
        return self.gap + (self.allowed_lateness if self.corrects else 0)

    def settled_by(self, watermark: int) -> int:
        """Every row that is accepted later has a later event time."""
        return max(self.final_by(watermark) - self.gap, self.settled)

    def finalized(self) -> Self:
        """The parameters after a step. Rows of a session end a gap before it, except for a closing row."""
        was_gap = self.gap if self.closed == BEFORE_ALL else self.closed - self.settled
        settled = self.final - (0 if self.until is not None else was_gap)
        return replace(super(SessionSpec, self).finalized(), settled=max(self.settled, settled))

    def is_bound_at(self, watermark: int) -> bool:
        """Whether `closed` or `settled` still matters."""
        is_closed = super(SessionSpec, self).is_bound_at(watermark)
        return is_closed or self.settled > self.final_by(watermark) - self.gap

    def _refuse_lengths(self) -> None:
        if self.max_length is None and self.when_longer != "split":
            raise conditions.WHEN_LONGER_WITHOUT_LENGTH.error(
                got=f"when_longer={self.when_longer!r} without max_length"
            )
        if self.max_length is not None and self.max_length < self.gap:
            raise conditions.MAX_LENGTH_BELOW_GAP.error(
                got=f"max_length={show_duration(self.max_length)}, gap={show_duration(self.gap)}"
            )
