"""The errors of streamops. Catch them by class, and distinguish them by ``code``.

=====================  ===================================================================
``StreamopsError``     base class: five facts, and a stable ``code``
``SpecError``          a parameter is out of range, or contradicts another
``CallError``          an unknown parameter, or one that is missing; also a ``TypeError``
``SchemaError``        a column cannot be used in the requested way
``ColumnNotFound``     a column does not exist
``WatermarkError``     a frame has no watermark, or one that the operator cannot use
``RequirementError``   a requirement is missing: Java, RocksDB, a package, a version
``StateFormatError``   a checkpoint that belongs to another operator or other parameters
``CheckpointError``    a checkpoint that cannot be read or rewritten
``SketchFormatError``  bytes that are not a sketch of the expected type
``ChangeStreamError``  a change stream that contradicts itself
``FunctionError``      a function of the user raised an exception, or its output has no use
``CapacityError``      a configured limit is reached
``SinkError``          a sink refused a micro-batch, or could not write it
=====================  ===================================================================

Errors down to ``RequirementError`` are raised while the plan is built. Spark wraps an error that a
worker raises while a query runs; its code is in the text of Spark's exception.
"""

from streamops.kernel.errors import (
    CallError,
    CapacityError,
    ChangeStreamError,
    CheckpointError,
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

__all__ = [
    "CallError",
    "CapacityError",
    "ChangeStreamError",
    "CheckpointError",
    "ColumnNotFound",
    "FunctionError",
    "RequirementError",
    "SchemaError",
    "SinkError",
    "SketchFormatError",
    "SpecError",
    "StateFormatError",
    "StreamopsError",
    "WatermarkError",
]
