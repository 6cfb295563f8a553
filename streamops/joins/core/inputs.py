"""Parameters of joins about both inputs: keys, event times, delays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from streamops.changelog.change_types import CHANGE_TYPE
from streamops.kernel.errors import ColumnNotFound, SpecError
from streamops.kernel.parameters import (
    parse_delay,
    parse_distinct_names,
    parse_names,
    require_keys,
    require_name,
    show_duration,
)
from streamops.kernel.time import Duration

__all__ = [
    "ADDED",
    "Both",
    "delays_of",
    "keys_of",
    "own_delays",
    "refuse_into",
    "refuse_keys",
    "refuse_missing",
    "sequence_of_revisions",
    "shown_both",
    "shown_keys",
    "shown_names",
    "times_of",
]

ADDED = (CHANGE_TYPE, "late")
"""Columns that a join may add beside ``into``."""

Both = tuple[int | None, int | None]
Keys = tuple[tuple[str, str], ...]


def shown_both(durations: Both) -> str:
    """Durations of both sides as a user writes them: one, where they are the same."""
    left, right = map(show_duration, durations)
    return left if left == right else f"({left}, {right})"


def shown_keys(by: Keys) -> str:
    """Key columns as a user writes them."""
    if any(left != right for left, right in by):
        return repr(dict(by))
    names = [name for name, _ in by]
    return repr(names[0] if len(names) == 1 else names)


def shown_names(names: tuple[str, str]) -> str:
    """Columns of both sides as a user writes them: one, where they are the same."""
    return repr(names[0] if names[0] == names[1] else names)


def keys_of(by: Any, *, where: str) -> Keys:
    """Key columns, left and right: given as one, as several, or as names by names.

    Examples
    --------
    >>> keys_of({"query": "search"}, where="doc"), keys_of(["a", "b"], where="doc")
    ((('query', 'search'),), (('a', 'a'), ('b', 'b')))
    """
    if isinstance(by, Mapping):
        pairs = tuple(by.items())
        parse_names([name for pair in pairs for name in pair], parameter="by", where=where)
    else:
        names = parse_distinct_names(by, parameter="by", where=where, empty=True)
        pairs = tuple((name, name) for name in names)
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


def times_of(time: Any, *, where: str) -> tuple[str, str]:
    """Event-time columns of both sides, given as one name or as two."""
    left, right = time if isinstance(time, tuple) and len(time) == 2 else (time, time)
    for name in (left, right):
        require_name(name, parameter="time", where=where)
    return left, right


def delays_of(
    delay: Duration | tuple[Duration | None, Duration | None] | None, *, where: str
) -> Both:
    """Delays of the watermarks on both sides, given as one duration or as two."""
    given: Any = delay if isinstance(delay, tuple) and len(delay) == 2 else (delay, delay)
    left, right = (
        None if duration is None else parse_delay(duration, parameter="delay", where=where)
        for duration in given
    )
    return left, right


def own_delays(delays: Both, carried: Both) -> Both:
    """Delays of the watermarks that the operator defines: none where a frame brings one."""
    left, right = (
        None if brought is not None else delay
        for delay, brought in zip(delays, carried, strict=True)
    )
    return left, right


def refuse_missing(schema: pa.Schema, required: Mapping[str, Sequence[str]], *, where: str) -> None:
    """Refuse columns, by the parameter that names them, that a side does not have."""
    for role, names in required.items():
        for name in names:
            if name not in schema.names:
                raise ColumnNotFound(name, schema.names, where=where, role=role)


def sequence_of_revisions(sequence: object, fix: str, *, where: str) -> SpecError:
    """The error if revisions are to order the changes of a key."""
    return SpecError(
        "SEQUENCE_OF_REVISIONS",
        "a delete has the revision of the row that it takes back: nothing says which is newer",
        where=where,
        got=f"sequence={sequence!r}",
        expected="a position in a log, higher for a delete than for what it deletes",
        fix=f"{fix}; or rename the column, if it is a position",
    )


def refuse_into(into: Any, *, where: str) -> None:
    """Refuse what is no name, or that of another column that a join may add."""
    require_name(into, parameter="into", where=where)
    if into.lower() in ADDED:
        raise SpecError(
            "NAME_TAKEN",
            "`into` is the name of another column that the join may add",
            where=where,
            got=f"into={into!r}",
            expected=f"a name unlike {', '.join(ADDED)}",
            fix='into="match", say',
        )


def refuse_keys(left: pa.Schema, right: pa.Schema, by: Keys, *, where: str) -> None:
    """Refuse keys that Spark does not hash."""
    ours, theirs = zip(*by, strict=True)
    require_keys(left, ours, where=f"{where}, left frame")
    require_keys(right, theirs, where=f"{where}, right frame")
