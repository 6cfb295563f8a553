"""The contradictions that a change stream can contain."""

from __future__ import annotations

from streamops.changelog import conditions

FAULTS = {
    condition.code: condition
    for condition in (
        conditions.UNKNOWN_CHANGE,
        conditions.INSERTED_TWICE,
        conditions.PREIMAGE_NOT_PUBLISHED,
        conditions.POSTIMAGE_ALONE,
        conditions.DELETED_UNPUBLISHED,
        conditions.PREIMAGE_ALONE,
        conditions.REVISION_OUT_OF_STEP,
        conditions.NO_SEQUENCE,
    )
}
"""The conditions, by code, in the order in which they are tested."""
