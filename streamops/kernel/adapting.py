"""Which parameters of a query may change between two starts, although its state depends on them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from streamops.kernel.added import have_same_names
from streamops.kernel.core import Identity

Accepts = Callable[[Identity, Identity], bool]
"""Whether a change of a parameter is accepted, from the stored identity and the one that is wanted."""


def _aggregates(stored: Identity, wanted: Identity) -> bool:
    return have_same_names(stored["agg"], wanted["agg"])


def _always(stored: Identity, wanted: Identity) -> bool:
    return True


_AGGREGATES: Mapping[str, Accepts] = {"agg": _aggregates}
_STRAGGLERS: Mapping[str, Accepts] = {
    "allowed_lateness": _always,
    "stragglers": _always,
    "too_late": _always,
}

ACCEPTED: Mapping[str, Mapping[str, Accepts]] = {
    "windows.grid": {**_AGGREGATES, **_STRAGGLERS},
    "windows.running": _AGGREGATES,
    "windows.session": {**_AGGREGATES, **_STRAGGLERS},
    "windows.sliding": {**_AGGREGATES, **_STRAGGLERS},
}
"""By layout and parameter. Its core adapts the tables, see ``Core.adapt``."""


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
