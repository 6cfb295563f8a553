"""What a user says about temporal joins, validated once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import pyarrow as pa

from streamops.joins.core.naming import named, refuse_reserved
from streamops.joins.core.temporal_spec import (
    CHANGE_TYPE,
    How,
    LateVersions,
    Stragglers,
    TemporalSpec,
    TooLate,
    WaitsFor,
)
from streamops.kernel.errors import ColumnNotFound, SchemaError, SpecError
from streamops.kernel.hashing import require_hashable
from streamops.kernel.ordering import is_comparable
from streamops.kernel.time import Duration, format_duration, parse_duration
from streamops.spark.columns import require_name, type_name
from streamops.spark.transform import choice

__all__ = ["TemporalJoin"]

_MILLISECOND = 1_000

Both = tuple[int | None, int | None]


def _words(micros: int | None) -> str:
    return repr(None if micros is None else format_duration(micros))


_IN_WORDS = {"shown": _words}


@dataclass(frozen=True, slots=True)
class TemporalJoin:
    """Settings of temporal joins; durations in microseconds."""

    where: str = field(repr=False)
    by: tuple[tuple[str, str], ...]
    time: str
    version: str
    sequence: str
    until: str | None
    deleted: str | None
    how: How
    tolerance: int | None = field(metadata=_IN_WORDS)
    waits_for: WaitsFor
    delays: Both = field(metadata={"shown": lambda both: f"({', '.join(map(_words, both))})"})
    allowed_lateness: int = field(metadata=_IN_WORDS)
    stragglers: Stragglers
    late_versions: LateVersions
    too_late: TooLate
    into: str

    @staticmethod
    def of(
        where: str,
        *,
        by: str | Sequence[str] | Mapping[str, str],
        time: str,
        version: str,
        sequence: str,
        until: str | None,
        deleted: str | None,
        how: How,
        tolerance: Duration | None,
        waits_for: WaitsFor,
        delay: Duration | tuple[Duration | None, Duration | None] | None,
        allowed_lateness: Duration,
        stragglers: Stragglers,
        late_versions: LateVersions,
        too_late: TooLate,
        into: str,
    ) -> TemporalJoin:
        """Settings as the user wrote them, normalised, or an error."""
        choice(how, How, parameter="how", where=where)
        choice(waits_for, WaitsFor, parameter="waits_for", where=where)
        choice(stragglers, Stragglers, parameter="stragglers", where=where)
        choice(late_versions, LateVersions, parameter="late_versions", where=where)
        choice(too_late, TooLate, parameter="too_late", where=where)
        named_ = {"time": time, "version": version, "sequence": sequence, "into": into}
        named_ |= {k: v for k, v in (("until", until), ("deleted", deleted)) if v is not None}
        for parameter, name in named_.items():
            require_name(name, parameter=parameter, where=where)
        oldest = None
        if tolerance is not None:
            oldest = parse_duration(tolerance, parameter="tolerance", where=where, minimum=0)
        lateness = parse_duration(
            allowed_lateness,
            parameter="allowed_lateness",
            where=where,
            minimum=0,
            whole=_MILLISECOND,
        )
        settings = TemporalJoin(
            where=where,
            by=_keys(by, where),
            time=time,
            version=version,
            sequence=sequence,
            until=until,
            deleted=deleted,
            how=how,
            tolerance=oldest,
            waits_for=waits_for,
            delays=_delays(delay, waits_for, where),
            allowed_lateness=lateness,
            stragglers=stragglers,
            late_versions=late_versions,
            too_late=too_late,
            into=into,
        )
        settings._refuse_contradictions()
        return settings

    @property
    def times(self) -> tuple[str | None, str | None]:
        """Event-time columns that the watermark goes by."""
        return self.time, self.version if self.waits_for == "both" else None

    @property
    def lag(self) -> int:
        """How far Spark's watermark must lie behind the operator's own."""
        return self.allowed_lateness

    @property
    def reads(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Columns whose values are compared."""
        left, right = zip(*self.by, strict=True)
        return (*left, self.time), (*right, self.version, self.sequence)

    def bind(self, left: pa.Schema, right: pa.Schema, *, carried: Both) -> TemporalSpec:
        """The spec over these columns."""
        self._refuse_missing(left, right)
        self._refuse_types(left, right)
        hidden = {name for name in (self.deleted, CHANGE_TYPE) if name is not None}
        shown = pa.schema([column for column in right if column.name not in hidden])
        names = named(left, shown, self.by, self.where)
        added = [self.into]
        added += [CHANGE_TYPE] if self.late_versions == "retract" else []
        added += ["late"] if "route" in (self.stragglers, self.too_late) else []
        fix = "rename the column before the join, or name the added one otherwise by into=..."
        refuse_reserved(names.schema.names, added, fix, self.where)
        delays = [
            None if brought is not None else delay
            for delay, brought in zip(self.delays, carried, strict=True)
        ]
        return TemporalSpec(
            by=self.by,
            time=self.time,
            version=self.version,
            sequence=self.sequence,
            until=self.until,
            deleted=self.deleted,
            facts=left,
            table=right,
            names=names,
            into=self.into,
            how=self.how,
            tolerance=self.tolerance,
            waits_for=self.waits_for,
            delay=(delays[0], delays[1]),
            allowed_lateness=self.allowed_lateness,
            stragglers=self.stragglers,
            late_versions=self.late_versions,
            too_late=self.too_late,
        )

    def _refuse_contradictions(self) -> None:
        keys = {name for _, name in self.by}
        others = {"version": self.version, "sequence": self.sequence, "until": self.until}
        others["deleted"] = self.deleted
        said = [name for name in others.values() if name is not None]
        if keys & set(said) or len(set(said)) < len(said):
            raise SpecError(
                "COLUMN_TWICE",
                "a column of the table cannot be two things",
                where=self.where,
                got=f"by={sorted(keys)}, " + ", ".join(f"{k}={v!r}" for k, v in others.items()),
                expected="a column of its own for each",
                fix="name another column, or give the table one more before the join",
            )

    def _refuse_missing(self, left: pa.Schema, right: pa.Schema) -> None:
        facts = [("by", name) for name, _ in self.by] + [("time", self.time)]
        table = [("by", name) for _, name in self.by]
        table += [("version", self.version), ("sequence", self.sequence)]
        table += [(r, n) for r, n in (("until", self.until), ("deleted", self.deleted)) if n]
        for schema, asked, side in ((left, facts, "facts"), (right, table, "table")):
            for role, name in asked:
                if name not in schema.names:
                    where = f"{self.where}, {side}"
                    raise ColumnNotFound(name, schema.names, where=where, role=role)

    def _refuse_types(self, left: pa.Schema, right: pa.Schema) -> None:
        instants = [(left, self.time, "event time"), (right, self.version, "the version time")]
        if self.until is not None:
            instants.append((right, self.until, "the end of a version"))
        for schema, name, use in instants:
            kind = schema.field(name).type
            if not (pa.types.is_timestamp(kind) and kind.tz is not None):
                fix = f"df.withColumn({name!r}, F.to_timestamp({name!r}))"
                self._refuse_type(schema, name, use, "timestamp", fix)
        if not is_comparable(right.field(self.sequence).type):
            fix = "name a number that grows with each change: a log position, a commit version"
            use, expected = "the sequence", "values that have an order"
            self._refuse_type(right, self.sequence, use, expected, fix)
        if self.deleted is not None and not pa.types.is_boolean(right.field(self.deleted).type):
            fix = "a column with the condition: df.withColumn('gone', F.col('op') == 'd')"
            self._refuse_type(right, self.deleted, "the sign of a deletion", "boolean", fix)
        if CHANGE_TYPE in right.names and not pa.types.is_string(right.field(CHANGE_TYPE).type):
            fix = "rename it, if it is no change type"
            self._refuse_type(right, CHANGE_TYPE, "the change type", "string", fix)
        for schema, names in zip((left, right), zip(*self.by, strict=True), strict=True):
            for name in names:
                try:
                    require_hashable(schema.field(name).type, where=f"{self.where}, key {name!r}")
                except SchemaError as error:  # the kernel knows Arrow's names of types only
                    facts = {"where": error.where, "expected": error.expected, "fix": error.fix}
                    got = type_name(error.got)
                    raise SchemaError(error.code, error.what, got=got, **facts) from None

    def _refuse_type(
        self, schema: pa.Schema, name: str, use: str, expected: str, fix: str
    ) -> NoReturn:
        raise SchemaError(
            "COLUMN_TYPE",
            f"column {name!r} cannot be used as {use}",
            where=self.where,
            got=f"{name!r} of type {type_name(schema.field(name).type)}",
            expected=expected,
            fix=fix,
        )


def _keys(by: Any, where: str) -> tuple[tuple[str, str], ...]:
    if isinstance(by, Mapping):
        pairs = tuple(by.items())
    else:
        names = (by,) if isinstance(by, str) or not isinstance(by, Sequence) else tuple(by)
        pairs = tuple((name, name) for name in names)
    for name in (name for pair in pairs for name in pair):
        require_name(name, parameter="by", where=where)
    if not pairs:
        raise SpecError(
            "NO_KEY",
            "nothing says which rows belong together",
            where=where,
            got=f"by={by!r}",
            expected="at least one key column",
            fix='by="user_id", or a constant column on both sides where all rows belong together',
        )
    return pairs


def _delays(delay: Any, waits_for: str, where: str) -> Both:
    """Delays of the watermarks on facts and on versions."""
    left, right = delay if isinstance(delay, tuple) and len(delay) == 2 else (delay, delay)
    if waits_for == "facts":
        if isinstance(delay, tuple) and right is not None:
            raise SpecError(
                "DELAY_WITHOUT_WATERMARK",
                "the versions have a delay, and no part in the watermark",
                where=where,
                got=f"delay={delay!r} with waits_for='facts'",
                expected="one delay, that of the facts",
                fix=f"delay={left!r}, or waits_for='both'",
            )
        right = None
    found = [
        None
        if each is None
        else parse_duration(each, parameter="delay", where=where, minimum=0, whole=_MILLISECOND)
        for each in (left, right)
    ]
    return found[0], found[1]
