"""An algorithm per shard."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from streamops.kernel.operator import Core, ShardSpec
from streamops.process import conditions
from streamops.spark.operator import Operator


def require_core(core: object, parameters: object) -> None:
    """Refuse what is not a core, and parameters that are not complete.

    Raises
    ------
    SpecError
        ``PARAMETER_TYPE``.
    """
    if not isinstance(core, Core):
        raise conditions.NOT_A_CORE.error(got=repr(core))
    missing = [
        name
        for name in ("STATE", "step")
        if getattr(type(core), name, None) is getattr(Core, name, None)
    ]
    if missing:
        raise conditions.CORE_WITHOUT_FUNCTION.error(missing=", ".join(missing), got=repr(core))
    if find_spec(f"streamops.{core.STATE.kind.partition('.')[0]}") is not None:
        raise conditions.STATE_NAME_TAKEN.error(got=f"STATE={core.STATE!r}")
    if not isinstance(parameters, ShardSpec):
        raise conditions.NOT_PARAMETERS.error(got=repr(parameters))


def per_shard(core: Core[Any], parameters: ShardSpec) -> Operator:
    """Process the rows of all keys of a shard by an algorithm of your own over columns.

    This is the contract that all operators of streamops fulfil: a pure function from a state, the rows of a
    micro-batch and a watermark to the next state and the output, all of them Arrow tables. The library
    packs and shuffles the rows, stores the state, observes the metrics, and computes batches.

    Input        any columns; those that `parameters` names
    Output       the columns of ``parameters.output``
    Output mode  append
    Watermark    if `parameters` has a ``time``: defined by its ``delay``, or by the frame
    State        the tables of ``core.TABLES``, per shard; their bound is that of the algorithm
    Order        any: the rows of a micro-batch are in no particular order
    Batch        ``core.run``

    Parameters
    ----------
    core : Core
        The algorithm: an object of a subclass of :class:`Core`.
    parameters : ShardSpec
        Its parameters: an object of a subclass of :class:`ShardSpec`, a frozen dataclass.

    Returns
    -------
    Operator
        For use with ``DataFrame.transform``.

    Raises
    ------
    SpecError
        ``PARAMETER_TYPE``: they are not derived from the bases.
    SchemaError, ColumnNotFound
        A column is missing or has the wrong type. ``ROWS_REVISED``: the rows of the frame can be revised.
    WatermarkError
        With a ``time``: a streaming frame has neither a watermark nor a ``delay``, or has both.

    Examples
    --------
    "Write your own operator" in the documentation develops one.

    >>> from streamops import process
    >>> gaps = process.per_shard(Increases(), IncreasesSpec(operator="acme.increases", by=("meter",)))

    Notes
    -----
    Verify it by ``streamops.testing.laws.check_operator``. Neither the core nor the parameters are part of a
    checkpoint, which has the name and version of the state, and ``parameters.identity``.

    See Also
    --------
    per_key : a Python function that sees one key at a time.
    """
    require_core(core, parameters)
    return Operator(parameters.operator, parameters, core)
