"""The errors that streamops raises: caught by class, told apart by ``code``.

=====================  ===================================================================
``StreamopsError``     every one of them: five facts, and a ``code`` that does not change
``SpecError``          a parameter is out of range, or contradicts another
``SchemaError``        a column cannot be used the way the operator was told to
``ColumnNotFound``     a column does not exist
``WatermarkError``     a frame has no watermark, or one that the operator cannot work with
``RequirementError``   something outside is missing: Java, RocksDB, a package, a version
``StateFormatError``   a checkpoint that this operator, with these parameters, must not read
``SketchFormatError``  bytes that are not the sketch they are taken for
``ChangeStreamError``  a change stream that contradicts itself
``CapacityError``      a stated limit is reached, and its stated consequence is to fail
=====================  ===================================================================

Those down to ``RequirementError`` are raised while the plan is built. What is raised while a query runs
is raised in a worker of Spark's, which wraps it: the code is in the text of its exception.
"""

from streamops.kernel.errors import (
    CapacityError,
    ChangeStreamError,
    ColumnNotFound,
    RequirementError,
    SchemaError,
    SketchFormatError,
    SpecError,
    StateFormatError,
    StreamopsError,
    WatermarkError,
)

__all__ = [
    "CapacityError",
    "ChangeStreamError",
    "ColumnNotFound",
    "RequirementError",
    "SchemaError",
    "SketchFormatError",
    "SpecError",
    "StateFormatError",
    "StreamopsError",
    "WatermarkError",
]
