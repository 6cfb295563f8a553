"""Conditions under which `sketches` raises an error."""

from streamops.kernel import codes
from streamops.kernel.errors import SchemaError, SketchFormatError

SKETCH_CANNOT_FORGET = codes.CHANGE_STREAM_INPUT(
    "{text} would count rows that the change stream retracts",
    "rows that are only ever added",
    "fold the changes to a table and take {instead} of it, which is exact; or make one theta sketch of the inserted rows and one of the retracted rows, and subtract; or drop {change_type!r} where all rows are inserts",
)
CHANGES_OF_ONE_ROW = codes.CHANGE_STREAM_INPUT(
    "changes of one row have the same identity, and are not duplicates",
    "rows that are only ever added",
    "suppress duplicates before the operator that emits changes; or drop {change_type!r} if all rows are inserts",
)
WEIGHT_NEGATIVE = codes.CHANGE_STREAM_INPUT(
    "a sketch cannot forget, but column {column!r} has negative weights",
    "weights >= 0",
    "leave such rows out, or count exactly: aggregates.sum",
)
TYPE_NOT_SUPPORTED = codes.COLUMN_TYPE(
    "{text} cannot be computed over this type",
    "{expected}",
    "cast it: df.withColumn({column!r}, F.col({column!r}).cast(...)); or pick a field of it",
)
NOT_SKETCHES = codes.COLUMN_TYPE(
    "{text} cannot be computed over this type",
    "binary: stored sketches",
    "name the column that has them, or sketch this one instead of merging it",
)
WEIGHT_TYPE = codes.COLUMN_TYPE(
    "the weight of {text} cannot be computed over this type",
    "integers >= 0",
    "cast the column, in a unit without fractions: cents, bytes",
)
NOT_AUDIENCES = codes.INVALID_PARAMETER(
    "`between` does not name the audiences",
    "2 to {most_audiences} different values: strings, integers, booleans, dates or binary",
    'between=["spring", "summer"]',
)
SUM_OVERFLOW = codes.NUMERIC_OVERFLOW(
    "the number of items counted of {column!r} does not fit into its type",
    "a value of type bigint",
    "use smaller weights: a coarser unit, such as kilobytes for bytes",
)
HORIZON_WITHOUT_TIME = codes.PARAMETER_MISSING(
    "`horizon` is measured in event time, and there is no event-time column",
    "the column with the event time",
    'time="ts"; or no horizon and when_full="evict_oldest" to forget by number',
)
ITEM_TYPE_REQUIRED = codes.PARAMETER_MISSING(
    "the type of the items in stored sketches is unknown",
    "an aggregate with `item_type`",
    '{function}({column!r}, item_type="string", ...)',
)
NO_IDENTITY = codes.PARAMETER_MISSING(
    "`identity` must name the columns that are equal in duplicates",
    "one column or several, without repetition",
    'identity=["order_id"]',
)
NO_ITEMS = codes.PARAMETER_MISSING(
    "`of` must name the items whose counts are returned",
    "a list of at least one item, without nulls",
    'count_min({column!r}, of=["a", "b"])',
)
NO_SHARE = codes.PARAMETER_MISSING(
    "the share of the most frequent items is not given",
    "one of them",
    "at_least=0.01 finds every item that is 1 % of all",
)
NO_PERCENTAGE = codes.PARAMETER_MISSING(
    "no percentage is given",
    "{expected}",
    "for example {call}",
)
CAPACITY_OUT_OF_RANGE = codes.PARAMETER_OUT_OF_RANGE(
    "`capacity` is out of range",
    "an integer >= 1",
    "the maximum number of distinct values, such as capacity=1_000_000",
)
K_OUT_OF_RANGE = codes.PARAMETER_OUT_OF_RANGE(
    "`k` is out of range",
    "a power of two from {least} to {most:,}",
    "use the default, k={default_k:,} (1.6 % standard error)",
)
PARAMETER_OUT_OF_RANGE = codes.PARAMETER_OUT_OF_RANGE(
    "`{parameter}` is out of range",
    "a number above 0 and below 1",
    "use the default, {parameter}={default}",
)
PERMUTATIONS_OUT_OF_RANGE = codes.PARAMETER_OUT_OF_RANGE(
    "MinHash has no functions with these parameters",
    "{expected}",
    "use the defaults: minhash_sketch_agg(column)",
)
PROBABILITY_OUT_OF_RANGE = codes.PARAMETER_OUT_OF_RANGE(
    "a percentage is out of range",
    "a number from 0 to 1",
    "0.5 is the median; one value in a hundred exceeds 0.99",
)
RATE_OUT_OF_RANGE = codes.PARAMETER_OUT_OF_RANGE(
    "`false_positive_rate` is out of range",
    "a float from {least_rate:g} to {most_rate:g}",
    "0.001: one of a thousand values that are not in the filter is a false positive",
)
SHARE_OUT_OF_RANGE = codes.PARAMETER_OUT_OF_RANGE(
    "`at_least` is out of range",
    "a number from {least} to 1",
    "at_least=0.01 for 1 %",
)
SKETCH_TOO_LARGE = codes.PARAMETER_OUT_OF_RANGE(
    "a table with this error and this confidence has too many cells",
    "at most {most_cells:,}",
    "allow a larger `relative_error`",
)
INTEGER_OUT_OF_RANGE = codes.PARAMETER_OUT_OF_RANGE(
    "`{parameter}` is out of range",
    "an integer from {least:,} to {most:,}",
    "use {parameter}={example}",
)
FILTER_TOO_LARGE = codes.PARAMETER_OUT_OF_RANGE(
    "a Bloom filter would be too large",
    "at most {bits} bits ({size} MiB) in one filter",
    "a smaller capacity or a higher rate, or one filter for each of several groups",
)
FILTERS_NEED_SHARDS = codes.PARAMETER_OUT_OF_RANGE(
    "a Bloom filter would be too large",
    "at most {bits} bits ({size} MiB) in one filter",
    ".options(shards={shards}) or more",
)
NOT_A_BLOOM_FILTER = codes.PARAMETER_TYPE(
    "`filter` is not a Bloom filter",
    "a Bloom filter",
    "make it by sketches.bloom_filter_agg(...)",
)
NOT_LIKE = codes.PARAMETER_TYPE(
    "`like` is not the aggregate that made these sketches",
    "the aggregate that made them: {expected}",
    "pass the aggregate of the `agg` that made the sketches",
)
SKETCH_REVISED = codes.ROWS_REVISED(
    "{text} would count each revision of a result again",
    "each result once, in its final form",
    "windows before that publish once (stragglers='drop' or 'route', early='never'); or take the last revision of each result, and drop the column {column!r}",
)
SKETCH_CORRUPT = codes.SKETCH_CORRUPT(
    "this sketch is damaged: {reason}",
    "{expected}",
    "make it again from its rows, or merge the others without it",
)
NOT_A_MINHASH = codes.SKETCH_CORRUPT(
    "this is no MinHash of datasketch",
    "a MinHash of 2 to {most:,} permutations and a seed from 0 to 2**32 - 1, or the bytes of its LeanMinHash.serialize",
    "read it again from its source, or make it again",
)
SKETCH_FOREIGN = codes.SKETCH_CORRUPT(
    "the object is not a readable datasketch sketch",
    "a HyperLogLogPlusPlus, or the bytes of its serialize",
    "count with HyperLogLogPlusPlus(p, hashfunc=datasketch_hash(hll_sketch_agg(...)))",
)
QUANTILES_CORRUPT = codes.SKETCH_CORRUPT(
    "these bytes are no valid sketch of quantiles",
    "a compact kll_{type} sketch of Apache DataSketches, with k={k}",
    "make it again from its rows, or merge the others without it",
)
QUANTILES_FOREIGN = codes.SKETCH_CORRUPT(
    "these bytes are no valid sketch of quantiles",
    "a compact kll_{type} sketch of Apache DataSketches, with k={k}",
    'dtype="bigint" for kll_sketch_agg_bigint, "float" for kll_sketch_agg_float, "double" for kll_sketch_agg_double; or make it again from its rows',
)
NOT_A_SKETCH = codes.SKETCH_CORRUPT(
    "these bytes are not a sketch of streamops",
    "{expected}",
    "name the column that has the sketches; a sketch of another library has no frame",
)
FRAME_CORRUPT = codes.SKETCH_CORRUPT(
    "this sketch is damaged",
    "{expected}",
    "make it again from its rows, or merge the others without it",
)
SKETCH_ITEM_TYPE = codes.SKETCH_KIND(
    "these bytes are a sketch of items of another type, which they do not contain",
    "items of type {dtype}, integers up to 2^53",
    'dtype="bigint" for kll_sketch_agg_bigint, "float" for kll_sketch_agg_float, "double" for kll_sketch_agg_double',
)
NOT_BYTES = codes.PARAMETER_TYPE(
    "a stored sketch is not bytes",
    "bytes, as in a row with a sketch",
    "sketches.read(row['users']), of a column with sketches",
)
SKETCH_UNKNOWN = codes.SKETCH_KIND(
    "this type of sketch is unknown",
    "one of: {sketch_types}",
    "use the release of streamops that wrote it, or a later one",
)
OTHER_SKETCH = codes.SKETCH_KIND(
    "this is a sketch of another type",
    "{kind}",
    "only sketches of one type can be merged: use the aggregate that made these",
)
OTHER_PRECISION = codes.SKETCH_PARAMETERS(
    "this sketch has another precision",
    "p={p}",
    "use p={found}, or make the sketch again",
)
PRECISION_UNSUPPORTED = codes.SKETCH_PARAMETERS(
    "this sketch has an unsupported precision",
    "p from {least} to {most}",
    "make it again with such a precision, or lower it by a union of Apache DataSketches",
)
SKETCH_PARAMETERS = codes.SKETCH_PARAMETERS(
    "a sketch of this type cannot have these parameters",
    "for {sketch}: {parameters}",
    "make it again from its rows",
)
OTHER_PARAMETERS = codes.SKETCH_PARAMETERS(
    "this sketch has other parameters: {differing}",
    "{parameters}",
    "only sketches of equal parameters can be merged: use those that these were made with",
)
NO_APACHE_ITEMS = codes.SKETCH_UNSUPPORTED.of(SchemaError)(
    "Apache DataSketches has no common format for items of this type",
    "string or bigint",
    "count the column as a string or a bigint",
)
NO_APACHE_SKETCH = codes.SKETCH_UNSUPPORTED(
    "Apache DataSketches has no sketch of this type",
    "hll_sketch_agg(...), theta_sketch_agg(...): an aggregate that Apache DataSketches has, too",
    "read the sketches in Python: sketches.read(blob)",
)
NO_SPARK_SKETCH = codes.SKETCH_UNSUPPORTED(
    "Spark has no such sketch",
    "an aggregate whose `native` is true",
    "use it in windows, on streams and batches alike",
)
SKETCH_HAS_NAN = codes.SKETCH_UNSUPPORTED.of(SketchFormatError)(
    "sketches of Apache DataSketches have no NaN",
    "sketches of numbers",
    "leave NaN out before the sketch is made: where(~isnan(column))",
)
OTHER_FORMAT = codes.SKETCH_UNSUPPORTED.of(SketchFormatError)(
    "this sketch was written in another format",
    "{expected}",
    "use a release of streamops that reads it (docs/state-formats.md)",
)
FILTERS_TOO_LARGE = codes.STATE_FULL(
    "the Bloom filters of a shard do not fit into one column",
    "at most {most_bytes} bytes",
    "more shards, fewer keys, a smaller capacity or a higher rate",
)
SEEN_FULL = codes.STATE_FULL(
    "there are more identities than `capacity`",
    "capacity={capacity} over all shards, within a horizon and a generation, which makes {room} for each of them",
    'start again from this checkpoint with when_full="evict_oldest", which forgets the oldest early, or "flag", which takes more new rows for duplicates; or from a new one with a larger capacity',
)
SKETCHES_FULL = codes.STATE_FULL(
    "the sketches represent too many values",
    "fewer than 2^62 values",
    "query fewer sketches at a time",
)
SKETCH_FULL = codes.STATE_FULL(
    "a sketch cannot represent so many values",
    "fewer than 2^48, or {max_values:,}",
    "store one sketch a month or a year, and do not merge those",
)
AUDIENCE_TYPE = codes.VALUE_TYPE.of(SchemaError)(
    "the audiences are no values of column `of`",
    "values of the column's type: string, integer, boolean, date or binary",
    "pass values of the column's type, or cast the column",
)
ITEM_TYPE_DIFFERS = codes.VALUE_TYPE.of(SchemaError)(
    "the type of the column is not `item_type`",
    "{expected}",
    "omit `item_type`: it is the type of the column",
)
ITEM_TYPE_NESTED = codes.VALUE_TYPE.of(SchemaError)(
    "a sketch of nested items cannot be stored",
    "a type that is not nested: boolean, number, string, binary, date, timestamp, interval",
    "make text of it first: {column}",
)
NOT_AN_ITEM = codes.VALUE_TYPE(
    "a value does not have the type of the items",
    "values of type {name}",
    "pass values of that type",
)
UNKNOWN_TYPE = codes.VALUE_TYPE(
    "`item_type` is not a type of items",
    "{nested}, by its name in Spark's simpleString()",
    'item_type="string", "bigint", "decimal(6,2)", ...',
)
IMAGE_TYPE_UNKNOWN = codes.VALUE_TYPE(
    "`dtype` is not a type of the items of such sketches",
    "{known}",
    'dtype="bigint"',
)
IMAGE_TYPE_UNUSED = codes.VALUE_TYPE(
    "`dtype` is not a type of the items of such sketches",
    "no `dtype`: it is for kll_sketch_agg(...)",
    "omit it",
)
SEEN_BEHIND_WATERMARK = codes.WATERMARK_TOO_EARLY(
    "the watermark would be lost: rows pass through Python here",
    "a frame without a watermark",
    "suppress duplicates first, withWatermark(...) or delay=... after it",
)
