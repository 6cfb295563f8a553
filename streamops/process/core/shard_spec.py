"""Checks of an operator of a user: its parameters, and its algorithm."""

from __future__ import annotations

from importlib.util import find_spec

from streamops.kernel.operator import Core, ShardSpec
from streamops.process import conditions


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
