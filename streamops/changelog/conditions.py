"""Conditions under which `changelog` raises an error."""

from streamops.kernel import codes

CHANGE_TYPE_RESERVED = codes.NAME_TAKEN(
    "{change_type!r} is not a column of the row",
    "a column of the row",
    "name another column, or none: the operator reads the change type in any case",
)
HORIZON_WITHOUT_UNIT = codes.PARAMETER_MISSING(
    "`{parameter}` has no unit",
    "a duration and the column that it is measured on; or without `time` an integer, 0 or more, in units of the sequence",
    '{parameter}="7 days", time="_changed_at"; or {parameter}=1_000_000',
)
KEYS_FULL = codes.STATE_FULL(
    "the operator has more keys than max_keys allows",
    "at most {limit:,} keys per shard: max_keys divided by shards",
    "raise max_keys, which a checkpoint survives; or have changes of further keys rejected: when_full='reject'",
)
