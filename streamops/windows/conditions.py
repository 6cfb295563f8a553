"""Conditions under which `windows` raises an error."""

from streamops.kernel import codes

CHANGE_STREAM_INPUT = codes.CHANGE_STREAM_INPUT(
    "every change would count as a row, also updates and deletes",
    "rows that are only ever added",
    "changes.aggregate(by=..., agg=...) retracts updated and deleted rows; or drop {change_type!r} if all rows are inserts",
)
GAP_TYPE = codes.COLUMN_TYPE(
    "column {column!r} cannot be used as the gap of a row",
    "interval day to second",
    "for a number of seconds: F.make_dt_interval(secs=F.col({column!r}))",
)
UNTIL_TYPE = codes.COLUMN_TYPE(
    "column {column!r} cannot be used as the mark of a closing row",
    "boolean",
    "a column with the condition: df.withColumn('ends', F.col('event') == 'logout')",
)
VALUE_TYPE = codes.COLUMN_TYPE(
    "column {column!r} cannot be used as a value to compare",
    "a number",
    "df.withColumn({column!r}, F.col({column!r}).cast('double')), or leave it out",
)
NUMBER_TYPE = codes.COLUMN_TYPE(
    "{function} cannot compute with column {column!r}",
    "a number",
    "df.withColumn({column!r}, F.col({column!r}).cast('double'))",
)
LATE_ROWS_IN_INPUT = codes.FRAME_TYPE(
    "the frame includes late rows, which are not results of windows",
    "results only",
    'before it: .where("late is null").drop("late")',
)
NOT_WINDOWED = codes.FRAME_TYPE(
    "the rows are not results of windows",
    "window_start and window_end among them",
    "apply it after a window. After a window of Spark: df.select('window', F.col('window.start').alias('window_start'), F.col('window.end').alias('window_end'), ...)",
)
REVISION_MISSING = codes.FRAME_TYPE(
    "without a revision, the newer row of a window is not known",
    "an integer column {column!r} with {change_type!r}",
    "keep the column revision of the preceding windows",
)
WINDOW_TWICE = codes.INSERTED_TWICE(
    "two different rows have the same key, window and revision",
    "one row per key and window, or a higher revision in the later row",
    "name all key columns of the preceding window in `by`; if results are corrected, keep the columns revision and _change_type",
)
CHANGE_OVERFLOW = codes.NUMERIC_OVERFLOW(
    "a change does not fit into its type",
    "changes that fit into {difference_type}",
    "cast {name!r} in the input: integers to decimal(20,0); or to double, which rounds",
)
EMPTY_FOR_TOO_SHORT = codes.PARAMETERS_CONTRADICT(
    "no empty window ends that soon after a window with rows",
    "at least {pace}",
    "lengthen empty_for, or leave it out",
)
EVERY_EXCEEDS_SIZE = codes.PARAMETERS_CONTRADICT(
    "`every` is longer than `size`: no window would end within its period",
    "0 < every <= size",
    "shorten every, or lengthen size",
)
HORIZON_BETWEEN_BORDERS = codes.PARAMETERS_CONTRADICT(
    "the horizon {name!r} does not end where a pane starts",
    "horizons that are multiples of every",
    "change the horizon, or an `every` that divides all of them",
)
HOP_EXCEEDS_SIZE = codes.PARAMETERS_CONTRADICT(
    "`hop` is longer than `size`: events between two windows would be lost",
    "0 < hop <= size",
    "shorten hop, or lengthen size",
)
MAX_LENGTH_BELOW_GAP = codes.PARAMETERS_CONTRADICT(
    "`max_length` is shorter than `gap`: every session would be cut",
    "gap <= max_length: a session of one event is as long as its gap",
    "lengthen max_length, or shorten gap",
)
NO_VALUE_OF_NOTHING = codes.PARAMETERS_CONTRADICT(
    "{name!r} has no value for a window without rows",
    "a state and an estimate, such as null, for a group without rows",
    "return one entry per group, even without rows (docs/aggregates.md), or leave out {parameter}",
)
UPDATE_CANNOT_MERGE = codes.PARAMETERS_CONTRADICT(
    "a straggler can merge sessions, and an update cannot retract one",
    "one of 'drop', 'route', 'retract'",
    "use stragglers='retract': it deletes the merged sessions by their start and end",
)
NOTHING_TO_CORRECT = codes.PARAMETER_MISSING(
    "no straggler would be accepted, so there is nothing to correct",
    "a duration for which rows still correct a published result",
    'for example allowed_lateness="1 hour"; or stragglers="drop"',
)
NO_HORIZON = codes.PARAMETER_MISSING(
    "no horizon to aggregate over",
    "a mapping: the end of the columns' names, and a duration",
    'horizons={{"1h": "1 hour", "7d": "7 days"}}',
)
NO_AGGREGATE = codes.PARAMETER_MISSING(
    "nothing to compute",
    "at least one named aggregate",
    'agg={{"events": aggregates.count()}}',
)
NO_VALUE = codes.PARAMETER_MISSING(
    "nothing to compare",
    "the name of at least one column",
    'for example values="views", a column of the preceding windows',
)
NO_FUNCTION = codes.PARAMETER_MISSING(
    "no value to compute",
    "at least one named function of other rows",
    'values={{"previous": windows.lag("price")}}',
)
NO_METHOD = codes.PARAMETER_MISSING(
    "no column to resample",
    "at least one column, and what it has between rows",
    'values={{"temperature": "linear", "state": "previous"}}',
)
UNIT_WITHOUT_ZONE = codes.PARAMETER_MISSING(
    "where a {unit} of the calendar starts depends on the time zone",
    "a zone with it, or a fixed duration",
    'for example zone="Europe/Berlin"; or {parameter}="1 day", which is 24 hours',
)
AGO_WITHOUT_ZONE = codes.PARAMETER_MISSING(
    "when a {unit} ago was depends on the time zone",
    "a zone with it, or a fixed duration",
    'for example zone="Europe/Berlin"; or {parameter}="1 day", which is 24 hours',
)
OFFSET_OUT_OF_RANGE = codes.PARAMETER_OUT_OF_RANGE(
    "`offset` is not a number of rows",
    "an integer, 1 or more",
    "1 is the row directly before or after; lag reads earlier rows, and lead later ones",
)
PERIODS_OUT_OF_RANGE = codes.PARAMETER_OUT_OF_RANGE(
    "`periods` is not a number of earlier periods",
    "an integer from 1 to {most_periods:,}",
    "periods=8 compares with the same window of the last eight periods",
)
THRESHOLD_OUT_OF_RANGE = codes.PARAMETER_OUT_OF_RANGE(
    "`threshold` is not a number of deviations",
    "a finite number above 0",
    "3.5, the default; a higher one flags fewer windows",
)
MIN_PERIODS_OUT_OF_RANGE = codes.PARAMETER_OUT_OF_RANGE(
    "`min_periods` is not a number of earlier periods",
    "an integer from 1 to periods",
    "leave it out: more than half of them; or raise periods",
)
TOO_MANY_EMPTY_WINDOWS = codes.PARAMETER_OUT_OF_RANGE(
    "each key would have too many empty windows after its last row",
    "at most {most_windows:,} empty windows after one with rows",
    "shorten empty_for, or use longer windows",
)
TOO_MANY_INSTANTS = codes.PARAMETER_OUT_OF_RANGE(
    "each row would be repeated at too many instants",
    "at most {most_windows:,} instants after a row: max_gap / every",
    "shorten max_gap, or lengthen every",
)
TOO_MANY_WINDOWS = codes.PARAMETER_OUT_OF_RANGE(
    "each event would lie in too many windows",
    "at most {most_windows:,} windows per event: ceil(size / {parameter})",
    "lengthen {parameter}; for one result per event use windows.sliding",
)
ORIGIN_WITH_ZONE = codes.PARAMETER_WITHOUT_EFFECT(
    "`origin` shifts fixed periods, and calendar periods start at fixed dates",
    "one of the two",
    "leave out origin or zone",
)
TOO_LATE_WITHOUT_CORRECTIONS = codes.PARAMETER_WITHOUT_EFFECT(
    "`too_late` applies to corrections only",
    "stragglers='update' or 'retract' with it",
    "stragglers='route' delivers every late row",
)
BAND_WITHOUT_PERIODS = codes.PARAMETER_WITHOUT_EFFECT(
    "`{parameter}` applies to the band of several periods only",
    "periods=2 or more with it",
    "for example periods=8, or leave {parameter} out",
)
WEEK_START_OF_A_PERIOD = codes.PARAMETER_WITHOUT_EFFECT(
    "`week_start` applies to weeks only",
    "size='week' and a zone with it",
    "leave week_start out; origin shifts fixed periods",
)
WEEK_START_WITHOUT_WEEK = codes.PARAMETER_WITHOUT_EFFECT(
    "`week_start` applies to weeks only",
    "{parameter}='week' with it",
    "leave week_start out",
)
WHEN_LONGER_WITHOUT_LENGTH = codes.PARAMETER_WITHOUT_EFFECT(
    "`when_longer` applies to a maximum length only",
    "max_length with it",
    'for example max_length="12 hours", or leave when_longer out',
)
NOT_A_FUNCTION = codes.PARAMETER_TYPE(
    "{name!r} is not a function of other rows",
    "a mapping of names to functions of windows: lag, lead, difference, rate, ewma",
    'values={{"previous": windows.lag("price")}}; windows.lag, and not that of Spark',
)
NOT_METHODS = codes.PARAMETER_TYPE(
    "`values` does not say what the columns have between rows",
    "a mapping of columns to 'previous', 'linear' or 'null'",
    'values={{"temperature": "linear", "state": "previous"}}',
)
REVISED_INPUT = codes.ROWS_REVISED(
    "the input is revised, and stragglers={stragglers!r} ignores revisions",
    "{expected}",
    "stragglers={wanted!r}, with the allowed_lateness of the preceding windows",
)
KEYS_FULL = codes.STATE_FULL(
    "there are more keys than `max_keys`",
    "at most {limit:,} there: max_keys, divided by shards",
    "raise max_keys, which a checkpoint survives; or leave further keys out: when_full='reject_new'",
)
SESSION_TOO_LONG = codes.STATE_FULL(
    "a session is longer than `max_length`",
    "at most {longest}, because of when_longer='fail'",
    "use when_longer='split', or a longer max_length",
)
EARLY_TURNED_AGAIN = codes.STATE_PARAMETERS(
    "`early` was changed in this checkpoint, and no micro-batch has run since",
    "early={stored!r}, as in the checkpoint",
    "run the query for one micro-batch with early={stored!r}; then change it",
)
