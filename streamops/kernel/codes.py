"""Every code of an error, with the class of its errors. `conditions.py` of each package defines what has which code."""

from streamops.kernel.errors import (
    CallError,
    CapacityError,
    ChangeStreamError,
    CheckpointError,
    Code,
    ColumnNotFound,
    FunctionError,
    RequirementError,
    SchemaError,
    SinkError,
    SketchFormatError,
    SpecError,
    StateFormatError,
    StreamopsError,
    WatermarkError,
)

INSTALL = (
    "pip install 'streamops[{extra}]'. Where a runtime has packages of its own, keep them: write them by "
    "`pip list --format=freeze > installed.txt`, and add `-c installed.txt`"
)
"""How to install an extra: pip replaces packages of a runtime that no constraint holds."""

KEY_NOT_UNWRAPPED = Code("KEY_NOT_UNWRAPPED", StreamopsError)
KEY_TABLE_UNAVAILABLE = Code("KEY_TABLE_UNAVAILABLE", StreamopsError)
ROW_REJECTED = Code("ROW_REJECTED", StreamopsError)

CONDITION_INVALID = Code("CONDITION_INVALID", SpecError)
DUPLICATE_COLUMN = Code("DUPLICATE_COLUMN", SpecError)
INVALID_DURATION = Code("INVALID_DURATION", SpecError)
INVALID_PARAMETER = Code("INVALID_PARAMETER", SpecError)
INVALID_ROWS = Code("INVALID_ROWS", SpecError)
INVALID_SCHEMA = Code("INVALID_SCHEMA", SpecError)
NAME_TAKEN = Code("NAME_TAKEN", SpecError)
NAME_TOO_LONG = Code("NAME_TOO_LONG", SpecError)
NOT_AN_AGGREGATE = Code("NOT_AN_AGGREGATE", SpecError)
NOT_A_FRAME = Code("NOT_A_FRAME", SpecError)
NOT_A_URL = Code("NOT_A_URL", SpecError)
NOT_REPLAYABLE = Code("NOT_REPLAYABLE", SpecError)
PARAMETERS_CONTRADICT = Code("PARAMETERS_CONTRADICT", SpecError)
PARAMETER_MISSING = Code("PARAMETER_MISSING", SpecError)
PARAMETER_OUT_OF_RANGE = Code("PARAMETER_OUT_OF_RANGE", SpecError)
PARAMETER_TYPE = Code("PARAMETER_TYPE", SpecError)
PARAMETER_WITHOUT_EFFECT = Code("PARAMETER_WITHOUT_EFFECT", SpecError)
PASSWORD_IN_URL = Code("PASSWORD_IN_URL", SpecError)
PATTERN_INVALID = Code("PATTERN_INVALID", SpecError)
SKETCH_UNSUPPORTED = Code("SKETCH_UNSUPPORTED", SpecError)
SOURCE_MISSING = Code("SOURCE_MISSING", SpecError)
STATE_API_NOT_CHAINABLE = Code("STATE_API_NOT_CHAINABLE", SpecError)
STREAMING_FRAME = Code("STREAMING_FRAME", SpecError)
TRANSCRIPT_MALFORMED = Code("TRANSCRIPT_MALFORMED", SpecError)
UNKNOWN_CHOICE = Code("UNKNOWN_CHOICE", SpecError)
UNKNOWN_OPERATOR = Code("UNKNOWN_OPERATOR", SpecError)
VALUE_TYPE = Code("VALUE_TYPE", SpecError)

NOT_CALLED = Code("NOT_CALLED", CallError)
TOO_MANY_ARGUMENTS = Code("TOO_MANY_ARGUMENTS", CallError)
UNKNOWN_PARAMETER = Code("UNKNOWN_PARAMETER", CallError)

BATCH_TYPE = Code("BATCH_TYPE", SchemaError)
CHANGE_STREAM_INPUT = Code("CHANGE_STREAM_INPUT", SchemaError)
COLUMNS_DIFFER = Code("COLUMNS_DIFFER", SchemaError)
COLUMN_TYPE = Code("COLUMN_TYPE", SchemaError)
FRAME_TYPE = Code("FRAME_TYPE", SchemaError)
KEY_NOT_UNIQUE = Code("KEY_NOT_UNIQUE", SchemaError)
MALFORMED_LOG = Code("MALFORMED_LOG", SchemaError)
ROWS_REVISED = Code("ROWS_REVISED", SchemaError)
SEQUENCE_TYPE = Code("SEQUENCE_TYPE", SchemaError)
TYPE_UNSUPPORTED = Code("TYPE_UNSUPPORTED", SchemaError)

COLUMN_NOT_FOUND = Code("COLUMN_NOT_FOUND", ColumnNotFound)

WATERMARK_LOST = Code("WATERMARK_LOST", WatermarkError)
WATERMARK_MISSING = Code("WATERMARK_MISSING", WatermarkError)
WATERMARK_NOT_WAITED_FOR = Code("WATERMARK_NOT_WAITED_FOR", WatermarkError)
WATERMARK_TOO_EARLY = Code("WATERMARK_TOO_EARLY", WatermarkError)
WATERMARK_TOO_TIGHT = Code("WATERMARK_TOO_TIGHT", WatermarkError)
WATERMARK_TWICE = Code("WATERMARK_TWICE", WatermarkError)

JAVA_NOT_FOUND = Code("JAVA_NOT_FOUND", RequirementError)
PACKAGE_MISSING = Code("PACKAGE_MISSING", RequirementError)
ROCKSDB_REQUIRED = Code("ROCKSDB_REQUIRED", RequirementError)
SESSION_TYPE = Code("SESSION_TYPE", RequirementError)
SLOT_IN_USE = Code("SLOT_IN_USE", RequirementError)
SLOT_LOST = Code("SLOT_LOST", RequirementError)
SOURCE_UNAVAILABLE = Code("SOURCE_UNAVAILABLE", RequirementError)
SOURCE_UNFIT = Code("SOURCE_UNFIT", RequirementError)
VERSION_NOT_SUPPORTED = Code("VERSION_NOT_SUPPORTED", RequirementError)
WATERMARK_POLICY = Code("WATERMARK_POLICY", RequirementError)

STATE_CORRUPT = Code("STATE_CORRUPT", StateFormatError)
STATE_KIND = Code("STATE_KIND", StateFormatError)
STATE_PARAMETERS = Code("STATE_PARAMETERS", StateFormatError)
STATE_SHARDS = Code("STATE_SHARDS", StateFormatError)
STATE_VERSION = Code("STATE_VERSION", StateFormatError)

BATCH_UNFINISHED = Code("BATCH_UNFINISHED", CheckpointError)
CHECKPOINT_CHANGED = Code("CHECKPOINT_CHANGED", CheckpointError)
CHECKPOINT_EMPTY = Code("CHECKPOINT_EMPTY", CheckpointError)
CHECKPOINT_FORMAT = Code("CHECKPOINT_FORMAT", CheckpointError)
CHECKPOINT_INCONSISTENT = Code("CHECKPOINT_INCONSISTENT", CheckpointError)
CHECKPOINT_PATH = Code("CHECKPOINT_PATH", CheckpointError)
CHECKPOINT_TORN = Code("CHECKPOINT_TORN", CheckpointError)
CHECKPOINT_UNFINISHED = Code("CHECKPOINT_UNFINISHED", CheckpointError)
CHECKPOINT_UNSUPPORTED = Code("CHECKPOINT_UNSUPPORTED", CheckpointError)
FOREIGN_OPERATOR = Code("FOREIGN_OPERATOR", CheckpointError)
LOG_BEHIND = Code("LOG_BEHIND", CheckpointError)
NOTHING_TO_MIGRATE = Code("NOTHING_TO_MIGRATE", CheckpointError)
NOT_A_CHECKPOINT = Code("NOT_A_CHECKPOINT", CheckpointError)
OTHER_SERVER = Code("OTHER_SERVER", CheckpointError)
SLOT_AHEAD = Code("SLOT_AHEAD", CheckpointError)

SKETCH_CORRUPT = Code("SKETCH_CORRUPT", SketchFormatError)
SKETCH_KIND = Code("SKETCH_KIND", SketchFormatError)
SKETCH_PARAMETERS = Code("SKETCH_PARAMETERS", SketchFormatError)

DELETED_UNPUBLISHED = Code("DELETED_UNPUBLISHED", ChangeStreamError)
INSERTED_TWICE = Code("INSERTED_TWICE", ChangeStreamError)
NO_SEQUENCE = Code("NO_SEQUENCE", ChangeStreamError)
POSTIMAGE_ALONE = Code("POSTIMAGE_ALONE", ChangeStreamError)
PREIMAGE_ALONE = Code("PREIMAGE_ALONE", ChangeStreamError)
PREIMAGE_NOT_PUBLISHED = Code("PREIMAGE_NOT_PUBLISHED", ChangeStreamError)
REVISION_OUT_OF_STEP = Code("REVISION_OUT_OF_STEP", ChangeStreamError)
TABLES_DIFFER = Code("TABLES_DIFFER", ChangeStreamError)
UNCHANGED = Code("UNCHANGED", ChangeStreamError)
UNKNOWN_CHANGE = Code("UNKNOWN_CHANGE", ChangeStreamError)

FUNCTION_RAISED = Code("FUNCTION_RAISED", FunctionError)
FUNCTION_RESULT = Code("FUNCTION_RESULT", FunctionError)

NUMERIC_OVERFLOW = Code("NUMERIC_OVERFLOW", CapacityError)
STATE_FULL = Code("STATE_FULL", CapacityError)

BATCH_DIFFERS = Code("BATCH_DIFFERS", SinkError)
BATCH_GAP = Code("BATCH_GAP", SinkError)
CHECKPOINT_BEHIND = Code("CHECKPOINT_BEHIND", SinkError)
FENCED = Code("FENCED", SinkError)
FILE_DAMAGED = Code("FILE_DAMAGED", SinkError)
LEDGER_INVALID = Code("LEDGER_INVALID", SinkError)
LEDGER_LOST = Code("LEDGER_LOST", SinkError)
LEDGER_OTHER_NAME = Code("LEDGER_OTHER_NAME", SinkError)
LEDGER_OTHER_TARGET = Code("LEDGER_OTHER_TARGET", SinkError)
NEW_CHECKPOINT = Code("NEW_CHECKPOINT", SinkError)
OFFSETS_UNKNOWN = Code("OFFSETS_UNKNOWN", SinkError)
QUERY_UNKNOWN = Code("QUERY_UNKNOWN", SinkError)
REWIND_TOO_FAR = Code("REWIND_TOO_FAR", SinkError)
TARGET_COLUMNS = Code("TARGET_COLUMNS", SinkError)
TARGET_FEATURE = Code("TARGET_FEATURE", SinkError)
TARGET_KEY = Code("TARGET_KEY", SinkError)
TARGET_KIND = Code("TARGET_KIND", SinkError)
TARGET_MISSING = Code("TARGET_MISSING", SinkError)
TARGET_RECREATED = Code("TARGET_RECREATED", SinkError)
TARGET_REFUSED = Code("TARGET_REFUSED", SinkError)
TARGET_SHARED = Code("TARGET_SHARED", SinkError)
TARGET_TRIGGER = Code("TARGET_TRIGGER", SinkError)
TARGET_TYPE = Code("TARGET_TYPE", SinkError)
TARGET_UNAVAILABLE = Code("TARGET_UNAVAILABLE", SinkError)
WAIT_TIMEOUT = Code("WAIT_TIMEOUT", SinkError)
