"""Which parameters of operators that store rows may change between two starts, and how their tables follow.

A result is computed from the rows in state by the parameters in force. So a parameter may change if the state has
all that results from now on need, and all that was published and may be revised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import pyarrow as pa

from streamops.kernel.added import have_same_names
from streamops.kernel.core import Identity

Accepts = Callable[[Identity, Identity], bool]
"""Whether a change of a parameter is accepted, from the stored identity and the one that is wanted."""


def _always(stored: Identity, wanted: Identity) -> bool:
    return True


def _columns(part: str) -> Accepts:
    """Columns are added or removed, and none has another type."""
    return lambda stored, wanted: have_same_names(stored[part], wanted[part])


def _revises(of: Identity) -> bool:
    """Whether an interval join revises results."""
    return bool(of["stragglers"] == "retract" or of["early"] != "never")


def _chooses(of: Identity) -> bool:
    """Whether an interval join publishes one partner of a left row, which it looks up again to revise it."""
    return bool(of["matches"] != "every")


def _interval_right(stored: Identity, wanted: Identity) -> bool:
    is_removed = {name for name, _ in stored["right"]} - {name for name, _ in wanted["right"]}
    looks_up = _chooses(stored) and _revises(stored)
    return have_same_names(stored["right"], wanted["right"]) and not (is_removed and looks_up)


def _bounds(stored: Identity, wanted: Identity) -> bool:
    return not (_chooses(stored) and _revises(stored))


_NARROWER = {
    "full": {"left", "right", "inner", "anti"},
    "left": {"inner", "anti"},
    "right": {"inner"},
    "anti": {"semi"},
}
"""By type of an interval join: those whose rows and statuses it stores, too."""


def _interval_how(stored: Identity, wanted: Identity) -> bool:
    before, after = stored["how"], wanted["how"]
    suffices = after in _NARROWER.get(before, ()) or _chooses(stored)
    return suffices and not _revises(stored)


def _choice(stored: Identity, wanted: Identity) -> bool:
    return _chooses(stored) and _chooses(wanted) and not _revises(stored)


def _still_revises(stored: Identity, wanted: Identity) -> bool:
    return _revises(wanted) or not _revises(stored)


def _early(stored: Identity, wanted: Identity) -> bool:
    return _still_revises(stored, wanted) and not _chooses(stored)


_INTERVAL: Mapping[str, Accepts] = {
    "left": _columns("left"),
    "right": _interval_right,
    "lower": _bounds,
    "upper": _bounds,
    "how": _interval_how,
    "matches": _choice,
    "tie_break": _choice,
    "allowed_lateness": _always,
    "too_late": _always,
    "stragglers": _still_revises,
    "early": _early,
}


def _is_final(stored: Identity, wanted: Identity) -> bool:
    """Whether an as-of join never revises a result: a fact leaves when its result is published."""
    return bool(stored["late_versions"] == "ignore")


def _versions(stored: Identity, wanted: Identity) -> bool:
    """Columns of versions, except of those by which a version is a delete."""
    before, after = ({name for name, _ in of["table"]} & _MARKS for of in (stored, wanted))
    return before == after and have_same_names(stored["table"], wanted["table"])


def _direction(stored: Identity, wanted: Identity) -> bool:
    """A search forward does not store the newest version before a fact."""
    return _is_final(stored, wanted) and stored["direction"] != "forward"


def _asof_stragglers(stored: Identity, wanted: Identity) -> bool:
    """The versions of facts that are late are only stored if these are answered."""
    return _is_final(stored, wanted) and wanted["stragglers"] != "answer"


def _asof_lateness(stored: Identity, wanted: Identity) -> bool:
    is_less = wanted["allowed_lateness"] <= stored["allowed_lateness"]
    return bool(is_less or wanted["stragglers"] != "answer")


_ASOF: Mapping[str, Accepts] = {
    "facts": _columns("facts"),
    "table": _versions,
    "tolerance": _is_final,
    "direction": _direction,
    "allow_exact": _is_final,
    "how": _is_final,
    "stragglers": _asof_stragglers,
    "allowed_lateness": _asof_lateness,
    "too_late": _always,
}
_MARKS = {"_change_type", "_tombstone"}


def _fewer_values(stored: Identity, wanted: Identity) -> bool:
    """A measure over rows from before would miss the values of a column that was added."""
    return all(list(column) in stored["values"] for column in wanted["values"])


_PATTERNS: Mapping[str, Accepts] = {"within": _always, "values": _fewer_values}


def _table(part: str) -> Accepts:
    """Without a sequence, a row is identified by all its values, and a later delete has those that were added."""

    def accepts(stored: Identity, wanted: Identity) -> bool:
        before, after = stored[part], wanted[part]
        others = before.keys() - {"columns"}
        is_same = all(before[name] == after[name] for name in others)
        has_same_types = have_same_names(before["columns"], after["columns"])
        return bool(is_same and has_same_types and before["sequence"] is not None)

    return accepts


def _ordered_columns(stored: Identity, wanted: Identity) -> bool:
    """A column that was removed may have ordered rows of one instant, on which published values depend."""
    names = [{name for name, _ in of["columns"]} for of in (stored, wanted)]
    by_order = any(str(of).startswith(("lead(", "ewma(")) for _, of in stored["values"])
    is_removed = bool(names[0] - names[1])
    return have_same_names(stored["columns"], wanted["columns"]) and not (is_removed and by_order)


def _compared_values(stored: Identity, wanted: Identity) -> bool:
    """Changes in conflict are compared by the values in their order."""
    before, after = ([name for name, _ in of["values"]] for of in (stored, wanted))
    is_in_order = [n for n in before if n in after] == [n for n in after if n in before]
    return have_same_names(stored["values"], wanted["values"]) and is_in_order


NOT_NULL = " not null"
"""Behind the type of a field of the state of a function, in an identity."""


def _state_fields(stored: Identity, wanted: Identity) -> bool:
    """Fields that may be null are added. A state from before has no names of fields: its tables are compared."""
    before, after = (dict(of.get("state", ())) for of in (stored, wanted))
    retained = all(
        after.get(name) in (of, of.removesuffix(NOT_NULL)) for name, of in before.items()
    )
    added = (of for name, of in after.items() if name not in before and "state" in stored)
    return retained and not any(of.endswith(NOT_NULL) for of in added)


def _initial(stored: Identity, wanted: Identity) -> bool:
    """A key with the initial state is not stored: it would get another one."""
    return have_same_names(stored.get("initial", ()), wanted["initial"])


def _on_timer(stored: Identity, wanted: Identity) -> bool:
    return bool(wanted["on_timer"] or "on_timer" not in stored)


def _waiting(stored: Identity, wanted: Identity) -> bool:
    return have_same_names(stored.get("columns", ()), wanted["columns"])


_PER_KEY: Mapping[str, Accepts] = {
    "state": _state_fields,
    "initial": _initial,
    "on_timer": _on_timer,
    "columns": _waiting,
}

BY_LAYOUT: Mapping[str, Mapping[str, Accepts]] = {
    "changes.latest": {"values": _compared_values},
    "joins.asof": _ASOF,
    "joins.enrich": {"values": _columns("values")},
    "joins.interval": _INTERVAL,
    "joins.tables": {"left": _table("left"), "right": _table("right")},
    "joins.timeline": {"columns": _columns("columns")},
    "patterns.match": _PATTERNS,
    "process.per_key": _PER_KEY,
    "search.match_as_of": {"documents": _columns("documents")},
    "windows.over": {"columns": _ordered_columns},
}

_PUBLISHED = "what was published and can be revised"
_ITEMS = "the items themselves, of which only hashes are in filters of this size"
_ROWS = "the rows that are in no match of the pattern before"
_CHANGES = "the earlier changes of each key"
_VERSIONS = "the versions that are not stored any more"
_QUERIES = "the stored queries and documents in other terms"
_TIMES = "the event times of earlier rows"

MISSING: Mapping[str, Mapping[str, str]] = {
    "changes.aggregate": {"agg": "the rows of each group"},
    "changes.intervals": dict.fromkeys(
        ("history", "ignore_nulls", "sequence", "snapshots", "track", "values"), _CHANGES
    ),
    "changes.latest": {
        **dict.fromkeys(("history", "ignore_nulls", "sequence", "snapshots", "track"), _CHANGES),
        "values": "values of another type, or conflicts by another order of the values",
    },
    "joins.asof": {
        **dict.fromkeys(("version", "sequence", "until", "deleted"), _VERSIONS),
        **dict.fromkeys(("tolerance", "direction", "allow_exact", "how"), _PUBLISHED),
        "allowed_lateness": "the versions for late facts, or results to revise",
        "stragglers": "the versions for late facts, or results to revise",
        "late_versions": "the facts whose results were published",
        "table": "values of another type, or which versions are deletes",
    },
    "joins.interval": {
        **dict.fromkeys(("lower", "upper", "matches", "tie_break"), _PUBLISHED),
        "how": "which stored rows had a partner, and what was published",
        "early": _PUBLISHED,
        "stragglers": _PUBLISHED,
        "right": "values of another type, or what was published and can be revised",
    },
    "joins.enrich": {"sequence": _CHANGES},
    "joins.tables": {
        "how": "the rows without a partner",
        "left": "the values by which a row is deleted; with a sequence, columns may change",
        "right": "the values by which a row is deleted; with a sequence, columns may change",
    },
    "joins.timeline": {
        "cap": "which posts were published",
        "ranked_by": "which posts were published",
        **dict.fromkeys(("author", "key", "user"), "the posts and follows by other keys"),
    },
    "patterns.match": {
        **dict.fromkeys(("pattern", "define", "skip", "matches", "tie_break"), _ROWS),
        "values": "the values of stored rows in a column that was added",
    },
    "process.per_key": {
        "operator": "the state of another function",
        "order_by": "the rows that were processed in another order",
        "state": "a field for each stored one, of its type (one that is not used may stay null)",
        "initial": "the keys whose state was the initial one, which are not stored",
        "on_timer": "a function for the timers in state (one that does nothing, if none shall fire)",
        "columns": "waiting rows with values of another type",
    },
    "search.match": dict.fromkeys(("default_operator", "fields", "sequence", "text"), _QUERIES),
    "search.match_as_of": dict.fromkeys(
        ("as_of", "default_operator", "fields", "sequence", "text"), _QUERIES
    ),
    "sketches.seen": dict.fromkeys(
        ("identity", "horizon", "generations", "capacity", "false_positive_rate", "bits", "probes"),
        _ITEMS,
    ),
    "time.producers": dict.fromkeys(("arrival", "producer"), _TIMES),
    "time.track_clock": dict.fromkeys(
        ("horizon", "largest_offset", "received", "sent", "step"), _TIMES
    ),
}
"""By layout and parameter: what the state does not have, where a change is refused."""


def map_columns(
    names: Iterable[str], stored: Iterable[str], table: pa.Table, schema: pa.Schema
) -> pa.Table:
    """A table of a state with the numbered columns of these names; null where one was added.

    Parameters
    ----------
    names, stored : iterable of str
        The names of the first columns of the schema, and of those of the table.
    table : Table
    schema : Schema
        The further columns have the same names in both.

    Examples
    --------
    >>> table = pa.table({"column.0": [1], "column.1": [2], "status": [3]})
    >>> schema = pa.schema({"column.0": pa.int64(), "column.1": pa.int64(), "status": pa.int64()})
    >>> map_columns(["b", "c"], ["a", "b"], table, schema).to_pylist()
    [{'column.0': 2, 'column.1': None, 'status': 3}]
    """
    before, now = list(stored), list(names)
    columns = []
    for at, field in enumerate(schema):
        if at >= len(now):
            columns.append(table.column(field.name))
        elif now[at] in before:
            columns.append(table.column(before.index(now[at])))
        else:
            columns.append(pa.nulls(len(table), field.type))
    return pa.table(columns, schema=schema)
