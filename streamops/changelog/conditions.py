"""Conditions under which `changelog` raises an error."""

from streamops.kernel import codes

DELETED_UNPUBLISHED = codes.DELETED_UNPUBLISHED(
    "a row was deleted that does not exist",
    "a row",
    "fold the changes of all micro-batches, exactly once; upserts without preimages go through changes.normalize first",
)
INSERTED_TWICE = codes.INSERTED_TWICE(
    "a row was inserted that exists already",
    "an update",
    "fold the changes of all micro-batches, exactly once; upserts without preimages go through changes.normalize first",
)
CHANGE_TYPE_RESERVED = codes.NAME_TAKEN(
    "{change_type!r} is not a column of the row",
    "a column of the row",
    "name another column, or none: the operator reads the change type in any case",
)
NO_SEQUENCE = codes.NO_SEQUENCE(
    "a change has no sequence",
    "no null in `sequence`",
    "fold the changes of all micro-batches, exactly once; upserts without preimages go through changes.normalize first",
)
HORIZON_WITHOUT_UNIT = codes.PARAMETER_MISSING(
    "`{parameter}` has no unit",
    "a duration and the column that it is measured on; or without `time` an integer, 0 or more, in units of the sequence",
    '{parameter}="7 days", time="_changed_at"; or {parameter}=1_000_000',
)
POSTIMAGE_ALONE = codes.POSTIMAGE_ALONE(
    "a postimage has no preimage",
    "a preimage before it",
    "fold the changes of all micro-batches, exactly once; upserts without preimages go through changes.normalize first; an update that changes the key must be a delete and an insert, as from changes.from_delta",
)
PREIMAGE_ALONE = codes.PREIMAGE_ALONE(
    "a preimage has no postimage",
    "its postimage",
    "fold the changes of all micro-batches, exactly once; upserts without preimages go through changes.normalize first; an update that changes the key must be a delete and an insert, as from changes.from_delta",
)
PREIMAGE_NOT_PUBLISHED = codes.PREIMAGE_NOT_PUBLISHED(
    "a preimage differs from the published row",
    "the row as it was published before",
    "fold the changes of all micro-batches, exactly once; upserts without preimages go through changes.normalize first",
)
REVISION_OUT_OF_STEP = codes.REVISION_OUT_OF_STEP(
    "two rows have the same key and revision",
    "a revision above the one before",
    "fold the changes of all micro-batches, exactly once; upserts without preimages go through changes.normalize first",
)
KEYS_FULL = codes.STATE_FULL(
    "the operator has more keys than max_keys allows",
    "at most {limit:,} keys per shard: max_keys divided by shards",
    "raise max_keys, which a checkpoint survives; or have changes of further keys rejected: when_full='reject_new'",
)
UNKNOWN_CHANGE = codes.UNKNOWN_CHANGE(
    "a change has an unknown type",
    "one of insert, update_preimage, update_postimage, delete",
    "fold the changes of all micro-batches, exactly once; upserts without preimages go through changes.normalize first; so do truncates",
)
