"""Errors of calls with wrong arguments, in the terms of the operator instead of those of Python."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import NoneType, SimpleNamespace, UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from streamops.kernel import conditions
from streamops.kernel.errors import CallError, Condition, StreamopsError, closest

_Function = TypeVar("_Function", bound=Callable[..., Any])

_SYNONYMS: Mapping[str, tuple[str, ...]] = {
    "aggregates": ("agg",),
    "aggregations": ("agg",),
    "agg_func": ("agg",),
    "aggs": ("agg",),
    "col": ("column",),
    "duration": ("size", "gap", "within"),
    "event_time": ("time",),
    "far_future": ("ahead",),
    "fill": ("values",),
    "freq": ("every",),
    "grace": ("allowed_lateness",),
    "group_by": ("by",),
    "groupby": ("by",),
    "key": ("by",),
    "key_by": ("by",),
    "keys": ("by", "key"),
    "late": ("stragglers",),
    "late_rows": ("stragglers",),
    "lateness": ("allowed_lateness",),
    "limit": ("max_gap",),
    "max_lateness": ("allowed_lateness",),
    "method": ("values",),
    "on": ("by",),
    "order_by": ("sequence", "ranked_by", "tie_break", "time"),
    "partition_by": ("by",),
    "period": ("size", "every"),
    "primary_key": ("key", "by"),
    "slide": ("hop",),
    "step": ("hop",),
    "timestamp": ("time",),
    "ts": ("time",),
    "type": ("how",),
    "watermark": ("delay",),
    "width": ("size",),
    "window": ("size", "within"),
}
"""Parameters of other libraries, and those of operators with this meaning, the most likely first."""

_OPTIONS = ("name", "shards", "engine", "state_api", "expected_keys")


def explain_calls(namespace: dict[str, Any]) -> None:
    """Let the public functions of a package explain calls with wrong arguments, and list only these names.

    Each function in ``__all__`` is replaced by one with the same signature, documentation and result.
    A call that does not fit the signature raises a ``CallError`` instead of a ``TypeError``:
    ``UNKNOWN_PARAMETER``, ``PARAMETER_MISSING``, ``TOO_MANY_ARGUMENTS`` or ``NOT_CALLED``. Completion shows
    ``__all__``, and not what the package imports.

    Arguments are validated by their annotations: ``Literal`` lists the choices, ``bool`` is true or false,
    and ``str`` is a name: text that is not empty. A function validates what is ``Annotated`` itself.

    Parameters
    ----------
    namespace : dict
        ``globals()`` of the package, at the end of its ``__init__``.
    """
    package = namespace["__name__"].partition(".")[2]
    for name in namespace["__all__"]:
        if inspect.isfunction(namespace[name]):
            namespace[name] = explain_call(f"{package}.{name}")(namespace[name])
    namespace["__dir__"] = lambda: [
        *namespace["__all__"],
        *(name for name in namespace if name.startswith("__")),
    ]


def explain_call(where: str, *, validates: bool = True) -> Callable[[_Function], _Function]:
    """Decorate a function or a method as :func:`explain_calls` does; ``where`` is how users call it.

    Errors that do not know where they are raised are located there. Unless it ``validates``, the function
    validates its arguments itself.
    """

    def decorate(function: _Function) -> _Function:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            try:
                if validates:
                    _validate(function, args, kwargs)
                return function(*args, **kwargs)
            except (StreamopsError, TypeError) as error:
                explained = _explained(function, args, kwargs, where)
                if explained is not None:
                    raise explained from None
                if isinstance(error, StreamopsError):
                    error.locate(where)
                raise

        return cast(_Function, call)

    return decorate


def _validate(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    # Importing a package, such as the test kit, does not import Arrow.
    from streamops.kernel.parameters import require_choice, require_name

    names, accepted = _annotated(function)
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    for name, (accepts, is_optional) in accepted.items():
        if name not in given or (given[name] is None and is_optional):
            continue
        if accepts is str:
            require_name(given[name], parameter=name)
        elif accepts is not bool:
            require_choice(given[name], accepts, parameter=name)
        elif not isinstance(given[name], bool):
            raise conditions.NOT_A_BOOLEAN.error(parameter=name, got=f"{name}={given[name]!r}")


@functools.cache
def _annotated(function: Any) -> tuple[Sequence[str], Mapping[str, tuple[Any, bool]]]:
    """Positional parameters; and by name, what its annotation accepts, and whether None, too."""
    accepted, scope = {}, inspect.unwrap(function).__globals__
    parameters = inspect.signature(function).parameters
    for name, parameter in parameters.items():
        annotated = SimpleNamespace(__annotations__={name: parameter.annotation})
        with suppress(NameError):  # a type that is imported for type checkers only has no choices
            hint = get_type_hints(annotated, scope, include_extras=True)[name]
            union = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
            accepts, *others = (of for of in union if of is not NoneType)
            if not others and (accepts in (str, bool) or get_origin(accepts) is Literal):
                accepted[name] = accepts, NoneType in union
    return [p.name for p in parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD], accepted


def _explained(
    # Values are not part of the errors: an argument may be a password.
    function: Callable[..., Any],
    args: Sequence[object],
    kwargs: Mapping[str, object],
    where: str,
) -> CallError | None:
    """What is wrong with the arguments; None if they fit, or if Python says it well."""
    signature = inspect.signature(function)
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        pass
    else:
        return None
    parameters = dict(signature.parameters)
    if parameters.pop("self", None):
        args = args[1:]
    # By name: the kernel does not import Spark. A Column appears to have every attribute.
    frames = [arg for arg in args if "DataFrame" in (base.__name__ for base in type(arg).__mro__)]
    accepted = [p for p in parameters.values() if "DataFrame" in str(p.annotation)]
    if len(frames) > len(accepted):
        condition = conditions.LEFT_FRAME_AS_ARGUMENT if accepted else conditions.FRAME_AS_ARGUMENT
        plural = "s" if len(frames) > 1 else ""
        return condition.error(
            where=where, operator=where, got=f"{len(frames)} DataFrame{plural} as arguments"
        )
    unknown = [name for name in kwargs if name not in parameters]
    if unknown:
        name = unknown[0]
        condition, meant = _unknown(name, [free for free in parameters if free not in kwargs])
        facts = {"parameter": name, "operator": where, "meant": meant}
        return condition.error(
            where=where, got=f"{name}=...", expected=_listed(parameters), **facts
        )
    positional = [p for p in parameters.values() if p.kind is not p.KEYWORD_ONLY]
    has_rest = any(p.kind is p.VAR_POSITIONAL for p in positional)
    if len(args) > len(positional) and not has_rest:
        free = [name for name in list(parameters)[len(positional) :] if name not in kwargs]
        return conditions.TOO_MANY_ARGUMENTS.error(
            where=where,
            free=free[0] if free else "name",
            expected=_listed(parameters),
            got=f"{len(args)} arguments without a name",
        )
    given = {*kwargs, *(p.name for p in positional[: len(args)])}
    missing = [
        p.name
        for p in parameters.values()
        if p.default is p.empty and p.name not in given and p.kind is not p.VAR_POSITIONAL
    ]
    if not missing:  # a parameter is passed twice
        return None
    named = " and ".join(f"`{name}`" for name in missing)
    return conditions.PARAMETER_MISSING.error(
        where=where,
        named=named,
        described="; ".join(_described(function, name) for name in missing),
        expected=_listed(parameters),
        got=", ".join(f"{name}=..." for name in parameters if name in given) or "no arguments",
    )


def _listed(parameters: Mapping[str, inspect.Parameter]) -> str:
    """Parameters, first those that must be given."""
    required = [name for name, p in parameters.items() if p.default is p.empty]
    others = [f"[{name}]" for name in parameters if name not in required]
    return ", ".join([*required, *others])


def _unknown(name: str, free: Sequence[str]) -> tuple[Condition[CallError], str]:
    """The condition for a parameter that does not exist, and the one that is probably meant."""
    lowered = name.lower()
    if name in _OPTIONS:
        return conditions.PARAMETER_IS_AN_OPTION, name
    for other in _SYNONYMS.get(lowered, ()):
        if other in free:
            return conditions.PARAMETER_OF_OTHERS, other
    near = closest(lowered, free) or [other for other in free if lowered in other]
    return (conditions.PARAMETER_MISSPELT, near[0]) if near else (conditions.UNKNOWN_PARAMETER, "")


def _described(function: Callable[..., Any], name: str) -> str:
    """What a parameter means: its type and the first sentence of its documentation."""
    section = inspect.getdoc(function) or ""
    found = re.search(
        rf"^(?:\w+, )*{re.escape(name)}(?:, \w+)* : (?P<type>.+)\n(?P<text>(?:    .+\n?)+)",
        section,
        re.MULTILINE,
    )
    if found is None:
        return f"{name}=..."
    text = " ".join(found["text"].split())
    return f"{name}=...: {found['type']}. {text.partition('. ')[0].rstrip('.')}"
