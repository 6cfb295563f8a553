"""The contradictions that a change stream can contain."""

from __future__ import annotations

from streamops.changelog.change_types import CHANGE_TYPES
from streamops.kernel.errors import ChangeStreamError

_COMPLETE = (
    "fold the changes of all micro-batches, exactly once; upserts without preimages go through "
    "changes.normalize first"
)
_KEY_CHANGES = (
    f"{_COMPLETE}; an update that changes the key must be a delete and an insert, as from "
    "changes.from_delta"
)
FAULTS = {
    "UNKNOWN_CHANGE": (
        "a change has an unknown type",
        f"one of {', '.join(CHANGE_TYPES)}",
        f"{_COMPLETE}; so do truncates",
    ),
    "INSERTED_TWICE": ("a row was inserted that exists already", "an update", _COMPLETE),
    "PREIMAGE_NOT_PUBLISHED": (
        "a preimage differs from the published row",
        "the row as it was published before",
        _COMPLETE,
    ),
    "POSTIMAGE_ALONE": ("a postimage has no preimage", "a preimage before it", _KEY_CHANGES),
    "DELETED_UNPUBLISHED": ("a row was deleted that does not exist", "a row", _COMPLETE),
    "PREIMAGE_ALONE": ("a preimage has no postimage", "its postimage", _KEY_CHANGES),
    "REVISION_OUT_OF_STEP": (
        "two rows have the same key and revision",
        "a revision above the one before",
        _COMPLETE,
    ),
    "NO_SEQUENCE": ("a change has no sequence", "no null in `sequence`", _COMPLETE),
}
"""By code: what is wrong, what was expected, and how to fix it."""


def fault_error(code: str, row: str) -> ChangeStreamError:
    """The error about a row that contradicts the rows before."""
    what, expected, fix = FAULTS[code]
    return ChangeStreamError(code, what, got=row, expected=expected, fix=fix)
