"""Conditions under which `changelog` raises an error."""

from streamops.kernel import codes
from streamops.kernel.errors import SchemaError

NO_PREIMAGES = codes.CHANGE_STREAM_INPUT(
    "an update would add its row without removing the previous one",
    "a change stream in which each update has a preimage and a postimage",
    'df.transform(changes.normalize(...)) first, which stores the current rows; or preimages="publish" in from_debezium, "delete" in from_delta, which read the previous rows',
)
KEYS_DIFFER = codes.COLUMNS_DIFFER(
    "the key columns of the two inputs have different types",
    "one type on both sides",
    "give both columns one type ({conversion})",
)
DELETED_UNPUBLISHED = codes.DELETED_UNPUBLISHED(
    "a row was deleted that does not exist",
    "a row",
    "fold the changes of all micro-batches, exactly once; upserts without preimages go through changes.normalize first",
)
DUPLICATE_COLUMN = codes.DUPLICATE_COLUMN.of(SchemaError)(
    "the frame has more than one column of the same name",
    "unique column names",
    "rename or drop one of them before the operator",
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
NAME_TAKEN = codes.NAME_TAKEN.of(SchemaError)(
    "the frame already has a column {column!r}",
    "a frame without {adds}",
    "df.withColumnRenamed({column!r}, ...) before this operator",
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
TRANSFORM_REQUIRED = codes.PARAMETERS_CONTRADICT(
    "the operator does not run behind this state API: {required}",
    "state_api='transformWithStateInPandas'",
    "leave state_api out, in a session with RocksDB",
)
LATE_ROWS = codes.ROWS_REVISED(
    "late rows would count as results",
    "rows that each count once",
    'stragglers="drop" in the operator before; or select the rows that count, and drop the columns: .where("late IS NULL").drop("late")',
)
REVISIONS_AND_LATE_ROWS = codes.ROWS_REVISED(
    "each revision of a result would be counted again",
    "rows that each count once",
    'stragglers="drop" in the operator before; or select the rows that count, and drop the columns: .where("late IS NULL").drop("late")',
)
RESULTS_REVISED = codes.ROWS_REVISED(
    "each revision of a result would be counted again",
    "rows that each count once",
    'stragglers="drop" in the operator before; or select the rows that count, and drop the columns, such as the on-time results alone: {selection}',
)
CHANGES = codes.ROWS_REVISED(
    "each revision of a result would be counted again",
    "rows that each count once",
    "fold them to a table first, in foreachBatch or downstream",
)
NOTHING_MAY_FOLLOW = codes.STATE_API_NOT_CHAINABLE(
    "no stateful operator may follow applyInPandasWithState in the same query",
    "transformWithStateInPandas in the operator before",
    "build these frames again, without state_api",
)
GROUPS_TWICE = codes.STATE_API_NOT_CHAINABLE(
    "a query may have applyInPandasWithState only once",
    "transformWithStateInPandas in one of the two",
    "build these frames again, without state_api",
)
GROUPS_AFTER_AGGREGATION = codes.STATE_API_NOT_CHAINABLE(
    "applyInPandasWithState may not follow a Spark aggregation in the same query",
    "transformWithStateInPandas behind the aggregation",
    "build these frames again, without state_api",
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
WATERMARK_LOST = codes.WATERMARK_LOST(
    "the query has a watermark upstream that no column of the frame carries any more, and Spark does not allow a second one",
    "a frame with the column that carries the watermark, or no watermark upstream",
    "keep the column with the watermark, such as window_end of windows; or remove withWatermark(...) upstream and pass delay=... to the operator there, whose output carries the watermark; move dropDuplicatesWithinWatermark(...) behind it. If the results of the operator before have no event time, read them from a table, in a second query; those of patterns, lead, lines and forward joins have one if the operator before them has as much allowed_lateness as they hold back",
)
WATERMARK_MISSING = codes.WATERMARK_MISSING(
    "a streaming frame needs a watermark, or its state would grow without bound",
    "delay=..., or a frame with withWatermark(...)",
    'set how long results wait for late rows: delay="30 seconds"',
)
WATERMARK_ON_OTHER_COLUMN = codes.WATERMARK_MISSING(
    "the frame's watermark is on {column!r}, and not on {time!r}",
    "a watermark on {time!r}, or delay=... and no watermark",
    'leave withWatermark({column!r}, ...) out and pass delay="30 seconds", say, or name {time!r} in withWatermark',
)
WATERMARK_ON_END = codes.WATERMARK_MISSING(
    "{time!r} is not the time up to which the frame is complete: a window is published once the watermark has "
    "reached {column!r}, so rows would be late",
    "time={column!r}, or windows that are read from a table or a topic",
    "pass time={column!r}",
)
LATENESS_OF_SPARK = codes.WATERMARK_TOO_TIGHT(
    "the frame's watermark leaves no room for the allowed lateness",
    "a lateness up to {room!r}: the delay of the frame's watermark, or the allowed_lateness of the operator before; behind Spark's own windows: 0",
    "leave allowed_lateness out: Spark's windows are not corrected. For stragglers, take windows of streamops before, with the same allowed_lateness",
)
LATENESS_TOO_LONG = codes.WATERMARK_TOO_TIGHT(
    "the frame's watermark leaves no room for the allowed lateness",
    "a lateness up to {room!r}: the delay of the frame's watermark, or the allowed_lateness of the operator before; behind Spark's own windows: 0",
    'lower allowed_lateness to that, with stragglers="drop" if it is 0; or raise what leaves the room: allowed_lateness of the operator before, if it has one, or the delay of withWatermark or time.producers; or read the results of the operator before from a table, in a second query',
)
CLOCK_BEHIND_WATERMARK = codes.WATERMARK_TWICE(
    "the frame already has a watermark, and Spark does not allow a second one",
    "a frame without a watermark: this operator defines one on {time!r}",
    "remove withWatermark({marks!r}, ...); apply this operator before all operators with a delay",
)
DELAY_ON_WATERMARK = codes.WATERMARK_TWICE(
    "the frame already has a watermark, and Spark does not allow a second one",
    "one of the two",
    "leave delay out; it is the frame's own delay less allowed_lateness",
)
DELAY_ON_OTHER_WATERMARK = codes.WATERMARK_TWICE(
    "the frame already has a watermark, and Spark does not allow a second one",
    "one of the two",
    "leave withWatermark({column!r}, ...) out: the operator defines one on {time!r}",
)
