"""Conditions under which a checkpoint is not read or rewritten."""

from streamops.kernel import codes
from streamops.kernel.errors import CheckpointError

BATCH_UNFINISHED = codes.BATCH_UNFINISHED(
    "the newest micro-batch was started, but not committed",
    "a query that was stopped between two micro-batches",
    "start the query once, which repeats the micro-batch, and stop it after that; with the trigger availableNow it stops by itself",
)
CHECKPOINT_CHANGED = codes.CHECKPOINT_CHANGED(
    "the checkpoint changed while it was rewritten: its query is running",
    "the checkpoint of a stopped query",
    "stop the query, delete {to}, and start again",
)
NOTHING_COMMITTED = codes.CHECKPOINT_EMPTY(
    "no micro-batch of the query was committed, so there is no state",
    "at least one committed micro-batch",
    "start the query, which finishes its first micro-batch",
)
NO_KEYS = codes.CHECKPOINT_EMPTY(
    "the state has no keys, only filters, from which they cannot be read",
    "an operator that stores keys",
    "`python -m streamops doctor CHECKPOINT` shows the size of the state",
)
NOTHING_PENDING = codes.CHECKPOINT_UNSUPPORTED(
    "the operator adds columns to the rows of a stream, and has no results of its own",
    "an operator that emits results, such as windows, sessions, joins and patterns",
    "publish what the query emitted: nothing else is missing",
)
NO_STATE = codes.CHECKPOINT_EMPTY(
    "the operator has no state yet",
    "a query that has processed rows",
    "wait for a micro-batch with rows",
)
CHECKPOINT_FORMAT = codes.CHECKPOINT_FORMAT(
    "the checkpoint has a format in which micro-batches refer to files of the state by id",
    "format 1, and logs of version v1",
    "start from a new checkpoint with spark.sql.streaming.stateStore.checkpointFormatVersion=1; rewriting format 2 is not supported",
)
QUERY_ID_MISSING = codes.CHECKPOINT_INCONSISTENT(
    "the file with the id of the query is missing",
    "a checkpoint as Spark wrote it",
    "restore the checkpoint from a copy",
)
REWRITE_DIFFERS = codes.CHECKPOINT_INCONSISTENT(
    "the new state is not what was written",
    "{rows} shards in {partitions} partitions, with the rows of {path}",
    "continue with the original, which is unchanged; report this error",
)
SEGMENT_OF_OTHER_AGGREGATES = codes.CHECKPOINT_INCONSISTENT(
    "a segment is from before the last change of the aggregates, which only the operator can map",
    "segments with the parameters of their shard",
    "pass the operator of the query: state.migrate(checkpoint, to, operator, frame); the next merge of the segment converts it, too",
)
SHARDS_CONTRADICT = codes.CHECKPOINT_INCONSISTENT(
    "the shards of an operator were not written by the same micro-batch of the same operator",
    "equal operator, parameters, number of shards, watermark and timers in all shards",
    "let the query process one micro-batch, so that it writes all shards; if it refuses the checkpoint, restore it from a copy",
)
TIMERS_CONTRADICT = codes.CHECKPOINT_INCONSISTENT(
    "a shard has several timers",
    "one timer per shard",
    "let the query process one micro-batch; a shard then has one timer",
)
CHECKPOINT_LINK = codes.CHECKPOINT_PATH(
    "the checkpoint has a symbolic link, which is not followed",
    "files and directories only",
    "replace the link by what it points to, while the query is stopped",
)
CHECKPOINT_NOT_LOCAL = codes.CHECKPOINT_PATH(
    "the directory is not on a local file system",
    "a path of this machine, mounted or local",
    "copy the checkpoint of the stopped query to a local disk. The result can be copied back if all operators use applyInPandasWithState: for the other API, Spark stores absolute paths",
)
REWRITE_LEFT = codes.CHECKPOINT_PATH(
    "the new checkpoint already exists: a rewrite that did not end left it",
    "a directory that does not exist, or is empty",
    "delete it, or pass another one",
)
TARGET_NOT_EMPTY = codes.CHECKPOINT_PATH(
    "the new checkpoint already exists",
    "a directory that does not exist, or is empty",
    "pass another directory",
)
TARGET_OVERLAPS = codes.CHECKPOINT_PATH(
    "the new checkpoint would overlap with the original",
    "a new directory outside of the checkpoint",
    "pass a directory beside it, such as {path}-rescaled",
)
CHECKPOINT_TORN = codes.CHECKPOINT_TORN(
    "a file of the checkpoint is not complete: the process or the disk failed while it was written",
    "a line with a version, and lines of JSON",
    "if it is the newest file of `offsets` and `commits` has no file of this number, delete it: the micro-batch was not started. Otherwise restore the checkpoint from a copy",
)
FIRST_PLAN_TORN = codes.CHECKPOINT_TORN(
    "the driver crashed while it wrote the plan of the first micro-batch, and Spark refuses to start from this checkpoint with STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY",
    "an empty directory, or at least one planned micro-batch",
    "delete the directory, and start the query again: nothing has been processed or written yet",
)
OFFSETS_MISSING = codes.CHECKPOINT_TORN(
    "a committed micro-batch has no offsets",
    "a file offsets/{last}",
    "restore the checkpoint from a copy",
)
CHECKPOINT_UNFINISHED = codes.CHECKPOINT_UNFINISHED(
    "a rewrite into this directory did not end",
    "a checkpoint that was verified",
    "delete the directory, and rewrite the original again: it is unchanged",
)
OPERATOR_METADATA_MISSING = codes.CHECKPOINT_UNSUPPORTED(
    "an operator has no metadata: Spark 3.5 and earlier did not write it",
    "a checkpoint of Spark 4.1 or later",
    "let the query process one micro-batch with Spark 4.1 or later",
)
OPERATOR_METADATA_UNKNOWN = codes.CHECKPOINT_UNSUPPORTED(
    "an operator refers to a schema outside of its checkpoint",
    "a file below `state`",
    "restore the checkpoint from a copy",
)
_NEW = (
    "start from a new checkpoint to change the number of shards; the query itself is not affected"
)
ROW_CHECKSUMS = codes.CHECKPOINT_UNSUPPORTED("the rows of the state have checksums", "false", _NEW)
NOT_AN_OPERATOR = codes.PARAMETER_TYPE(
    "`operator` is not an operator with a state",
    "an operator of streamops, and then the streaming frame that the query applies it to",
    "(checkpoint, windows.tumbling(...), views): pass the operator, and not its result",
)
STATE_API_NOT_SUITABLE = codes.CHECKPOINT_UNSUPPORTED(
    "{api} cannot continue from the state",
    "one stateful operator that runs behind both state APIs; for applyInPandasWithState without segments",
    "select {stored}, as in the checkpoint",
)
STATE_ENCODING = codes.CHECKPOINT_UNSUPPORTED(
    "the rows of the state are not in Spark's own encoding", "unsaferow", _NEW
)
STATE_STORE_UNKNOWN = codes.CHECKPOINT_UNSUPPORTED(
    "the state is in a state store that streamops cannot write",
    "RocksDBStateStoreProvider or HDFSBackedStateStoreProvider",
    _NEW,
)
SPARK_PARTITIONS = codes.FOREIGN_OPERATOR(
    "the number of partitions of Spark's own operators cannot be changed here",
    "{partitions} partitions, as in the checkpoint",
    "omit the number of partitions",
)
SPARK_STATE_STORE = codes.FOREIGN_OPERATOR(
    "the state store of Spark's own operators cannot be changed here",
    "{provider}, as in the checkpoint",
    "omit the state store",
)
ROCKSDB_NEEDED = codes.CHECKPOINT_UNSUPPORTED(
    "transformWithStateInPandas, which an operator of the query runs on, needs RocksDB",
    "RocksDBStateStoreProvider",
    "omit the state store",
)
FOREIGN_OPERATOR = codes.FOREIGN_OPERATOR(
    "the state belongs to an operator that is not one of streamops",
    "the state {state_schema}",
    "name an operator of streamops: `python -m streamops doctor CHECKPOINT` lists them",
)
NOTHING_TO_MIGRATE = codes.NOTHING_TO_MIGRATE(
    "all operators of the checkpoint have the current formats, and the operator that was passed has the parameters and shards of its state",
    "a checkpoint in an older format, or an operator that differs from its state",
    "continue with the checkpoint as it is",
)
NOT_STORED = codes.STATE_PARAMETERS(
    "the stored state does not have what the operator needs: {changed}",
    "{stored}, as written, or a change that a stored state can follow",
    "needs history: start the operator as a second job that reads the retained log, see docs/operations.md#a-new-version-of-a-job; if only a name differs, pass rename={{stored: new}}",
)
NOT_A_CHECKPOINT = codes.NOT_A_CHECKPOINT(
    "the directory is not the checkpoint of a query that has started",
    "the `checkpointLocation` of a query: a directory with metadata and offsets",
    "pass the directory that contains `offsets`, not a directory above or below it",
)
PARAMETER_OUT_OF_RANGE = codes.PARAMETER_OUT_OF_RANGE(
    "`{parameter}` is out of range",
    "an integer from 1 to {most}",
    "docs/operations.md#choosing-shards",
)
CLASSIC_SESSION_REQUIRED = codes.SESSION_TYPE(
    "state stores are written by the driver of a classic session",
    "a classic session",
    "python -m streamops state ..., which starts one where the checkpoint is",
)
FRAME_MISSING = codes.PARAMETER_MISSING(
    "an operator has the types of its columns from the frame that it is applied to",
    "`operator` and `frame`, or neither",
    "pass the streaming frame of the query, whose rows are not read",
)
RENAME_WITHOUT_EFFECT = codes.PARAMETER_WITHOUT_EFFECT(
    "`rename` has a name that the state does not have, or that the operator does not use in its place",
    "names in the stored parameters, and in those of the operator; stored are {parameters}",
    "pass rename={{stored: new}} with columns or aggregates of both",
)
RENAMED_TWICE = codes.DUPLICATE_COLUMN(
    "two stored aggregates would have the same name",
    "one stored aggregate per name",
    "omit one of them from `rename`",
)
STATE_UNKNOWN = codes.STATE_VERSION(
    "this release does not know the layout of the state",
    "one of: {formats}",
    "use the release of streamops that wrote it",
)
UNKNOWN_OPERATOR = codes.UNKNOWN_OPERATOR.of(CheckpointError)(
    "the checkpoint does not have one operator of this name or number",
    "a number among {known}, or the name of the state of one operator",
    "`python -m streamops doctor CHECKPOINT` lists the operators: pass the number",
)
UNKNOWN_OPERATOR_NUMBER = codes.UNKNOWN_OPERATOR(
    "the checkpoint has no stateful operator of this number",
    "numbers among {known}",
    "`python -m streamops doctor CHECKPOINT` lists the operators",
)
SPARK_NOT_TESTED = codes.VERSION_NOT_SUPPORTED(
    "state stores are written by internal classes of Spark, which differ between versions",
    "{expected}",
    'pip install "pyspark==4.3.*" in an environment of its own; a later Spark reads the new checkpoint',
)
