"""What users say of any operator: names, and aggregates under names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streamops.kernel.errors import SpecError
from streamops.spark.columns import require_name

__all__ = ["names_of", "refuse_taken", "require_aggregates"]


def refuse_taken(
    names: Sequence[str], reserved: Sequence[str], given: Mapping[str, Any], fix: str, where: str
) -> None:
    """Refuse two columns of the result of one name; to Spark, upper and lower case are one."""
    folded = [name.lower() for name in names]
    taken = sorted({n for n in names if folded.count(n.lower()) > 1 or n.lower() in reserved})
    if taken:
        raise SpecError(
            "NAME_TAKEN",
            f"a name stands for two columns of the result: {', '.join(taken)}",
            where=where,
            got=", ".join(f"{parameter}={value!r}" for parameter, value in given.items()),
            expected=f"names unlike one another and unlike {', '.join(reserved)}",
            fix=fix,
        )


def names_of(value: object, *, parameter: str, where: str) -> tuple[str, ...]:
    """Names of columns, given as one or as several."""
    names = (value,) if isinstance(value, str) or not isinstance(value, Sequence) else value
    for name in names:
        require_name(name, parameter=parameter, where=where)
    return tuple(names)


def require_aggregates(agg: object, *, where: str) -> None:
    """Refuse what is not a mapping of names to aggregates; an empty one is one."""
    named = dict(agg) if isinstance(agg, Mapping) else {"?": agg}
    for name, value in named.items():
        require_name(name, parameter="agg", where=where)
        # A Column of Spark's seems to have whatever attribute it is asked for.
        methods = (getattr(value, method, None) for method in ("bind", "to_spark"))
        native = getattr(value, "native", None)
        is_one = isinstance(native, bool) and all(map(callable, methods))
        is_one &= isinstance(agg, Mapping)  # a lone aggregate has no name
        if isinstance(value, type) or not is_one:
            raise SpecError(
                "NOT_AN_AGGREGATE",
                f"{name!r} is not an aggregate",
                where=where,
                got=f"agg={agg!r}",
                expected="a mapping of names to aggregates",
                fix='agg={"events": aggregates.count()}',
            )
        if type(value).__repr__ is object.__repr__:
            raise SpecError(
                "AGGREGATE_WITHOUT_WORDS",
                f"{name!r} is an aggregate that cannot be known again in a checkpoint",
                where=where,
                got=f"{value!r}, another text in each process",
                expected="a repr that says which aggregate it is, and nothing else",
                fix=f"make {type(value).__name__} a dataclass, or give it a __repr__",
            )
