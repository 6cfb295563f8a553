"""Checks of an operator of a user: its parameters, and its algorithm."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from streamops.kernel.errors import SpecError
from streamops.kernel.operator import Core, ShardSpec


def require_core(core: Any, parameters: Any, *, where: str) -> None:
    """Refuse what is not a core, and parameters that are not complete.

    Raises
    ------
    SpecError
        ``PARAMETER_TYPE``.
    """
    if not isinstance(core, Core):
        raise SpecError(
            "PARAMETER_TYPE",
            "`core` is not an object of a class derived from process.Core",
            where=where,
            got=repr(core),
            expected="an object, such as MyCore()",
            fix="derive a class from process.Core, and pass an object of it: MyCore()",
        )
    missing = [
        name
        for name in ("STATE", "step")
        if getattr(type(core), name, None) is getattr(Core, name, None)
    ]
    if missing:
        raise SpecError(
            "PARAMETER_TYPE",
            f"`core` does not define {', '.join(missing)}",
            where=where,
            got=repr(core),
            expected="STATE, TABLES and step; with event time, next_deadline",
            fix="define them in the class",
        )
    if find_spec(f"streamops.{core.STATE.kind.partition('.')[0]}") is not None:
        raise SpecError(
            "PARAMETER_TYPE",
            "the name of the state is one of streamops",
            where=where,
            got=f"STATE={core.STATE!r}",
            expected="a name of your own",
            fix='StateFormat("acme.my_operator", 1)',
        )
    if not isinstance(parameters, ShardSpec):
        raise SpecError(
            "PARAMETER_TYPE",
            "`parameters` is not an object of a class derived from process.ShardSpec",
            where=where,
            got=repr(parameters),
            expected="an object of a frozen dataclass that is derived from process.ShardSpec",
            fix="derive a frozen dataclass from process.ShardSpec, and pass an object of it",
        )
