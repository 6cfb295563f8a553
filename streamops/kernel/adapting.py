"""Which parameters of a query may change between two starts, although its state depends on them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from streamops.kernel.adapting_rows import BY_LAYOUT, MISSING
from streamops.kernel.added import have_same_names
from streamops.kernel.core import Identity

Accepts = Callable[[Identity, Identity], bool]
"""Whether a change of a parameter is accepted, from the stored identity and the one that is wanted."""


def _aggregates(stored: Identity, wanted: Identity) -> bool:
    return have_same_names(stored["agg"], wanted["agg"])


def _always(stored: Identity, wanted: Identity) -> bool:
    return True


_ROUNDED = ("double", "float", "kll", "heavy_hitters")
"""Types and sketches of states that depend on the order of merging, in an identity."""

_AGGREGATES: Mapping[str, Accepts] = {"agg": _aggregates}
_STRAGGLERS: Mapping[str, Accepts] = {
    "allowed_lateness": _always,
    "stragglers": _always,
    "too_late": _always,
}


def _exactly_retracted(stored: Identity, wanted: Identity) -> bool:
    """Cumulative windows merge panes after they are published: preimages would be rounded otherwise."""
    is_out = stored["stragglers"] == "update" or stored["early"] != "never"
    begins = wanted["stragglers"] == "retract" != stored["stragglers"]
    is_merged = "every" in stored and any(of in str(stored["agg"]) for of in _ROUNDED)
    return not (begins and is_out and is_merged)


def _fewer_empty(stored: Identity, wanted: Identity) -> bool:
    """Empty windows that were published could be corrected; others would be needed for more of them."""
    before, after = stored["empty_for"], wanted["empty_for"]
    is_corrected = {"update", "retract"} & {stored["stragglers"], wanted["stragglers"]}
    return not is_corrected and (after is None or bool(before is not None and after <= before))


def _taken_back(stored: Identity, wanted: Identity) -> bool:
    """Early results of sessions can be taken back in a change stream only: their windows change."""
    is_off = stored["early"] != "never" and wanted["early"] == "never"
    return not is_off or bool(wanted["stragglers"] == "retract")


def _split(stored: Identity, wanted: Identity) -> bool:
    """No stored session is longer, if the query failed for one."""
    return bool(wanted["when_longer"] == "split")


def _no_longer(stored: Identity, wanted: Identity) -> bool:
    """Rows are stored for the longest horizon."""
    longest = [max(length for _, length in of["horizons"]) for of in (stored, wanted)]
    return bool(longest[1] <= longest[0])


ACCEPTED: Mapping[str, Mapping[str, Accepts]] = {
    **BY_LAYOUT,
    "changes.intervals": {"digests": _always},
    "sketches.seen": {"digests": _always},
    "windows.grid": {
        **_AGGREGATES,
        **_STRAGGLERS,
        "early": _always,
        "stragglers": _exactly_retracted,
        "empty_for": _fewer_empty,
    },
    "windows.rolling": {"horizons": _no_longer, "stragglers": _always},
    "windows.running": {**_AGGREGATES, "changes": _always},
    "windows.session": {
        **_AGGREGATES,
        **_STRAGGLERS,
        "early": _taken_back,
        "gap": _always,
        "when_longer": _split,
    },
    "windows.sliding": {**_AGGREGATES, **_STRAGGLERS, "early": _always},
}
"""By layout and parameter. Its core adapts the tables, see ``Core.adapt``."""


_HISTORY: Mapping[str, Collection[str]] = {
    "windows.compare": {
        *("period", "zone", "values", "periods", "revised", "threshold", "min_periods"),
        *("agg", "allowed_lateness", "stragglers", "too_late"),
    },
    "windows.grid": {
        *("size", "hop", "origin", "grid", "unit", "zone", "week_start", "every"),
        *("agg", "empty_for", "stragglers"),
    },
    "windows.over": {"values", "within", "tie_break", "columns"},
    "windows.resample": {"every", "max_gap", "values", "tie_break", "columns"},
    "windows.rolling": {
        *("every", "horizons", "agg"),
        *("allowed_lateness", "early", "empty_for", "too_late"),
    },
    "windows.running": {"agg"},
    "windows.session": {"gap_column", "until", "max_length", "when_longer", "early", "agg"},
    "windows.sliding": {"size", "agg"},
}
"""By layout, parameters that may not change because rows would be needed that are not stored."""

_ANEW = "start from a new checkpoint"
_NAMED = "migrate the checkpoint (state.migrate) if names changed or integers got more bits, or start from a new one"


def way_out(layout: str, refused: Collection[str]) -> str:
    """What to do if these parameters changed that may not change.

    Examples
    --------
    >>> way_out("windows.grid", ["size"])
    'fill a new version of the job from history: another size needs rows that are not stored'
    >>> way_out("windows.grid", ["time"])
    'migrate the checkpoint (state.migrate) if names changed or integers got more bits, or start from a new one'
    >>> way_out("joins.timeline", ["cap"])
    'fill a new version of the job from history: cap needs which posts were published'
    """
    missing = MISSING.get(layout, {})
    reasons = [f"{name} needs {missing[name]}" for name in sorted({*refused} & {*missing})]
    names = sorted({*refused} & {*_HISTORY.get(layout, ())})
    if names:
        reasons.append(f"another {', '.join(names)} needs rows that are not stored")
    if not reasons:
        return _NAMED if {*refused} <= {"by", "key", "time"} else _ANEW
    return f"fill a new version of the job from history: {'; '.join(reasons)}"


def may_change(
    layout: str, changed: Collection[str], stored: Identity, wanted: Identity
) -> set[str]:
    """Those of the changed parameters that may change.

    Examples
    --------
    >>> stored, wanted = {"size": 1, "agg": [["n", "count()"]]}, {"size": 2, "agg": []}
    >>> may_change("windows.grid", ["agg", "size"], stored, wanted)
    {'agg'}
    >>> may_change("joins.asof", ["agg"], stored, wanted)
    set()
    """
    accepted = ACCEPTED.get(layout, {})
    return {name for name in changed if name in accepted and accepted[name](stored, wanted)}
