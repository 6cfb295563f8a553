"""Names of key columns that a user gives, beside those that a result has by itself."""

from __future__ import annotations

from collections.abc import Sequence

from streamops.kernel.errors import ColumnNotFound, SpecError
from streamops.kernel.parameters import parse_names

__all__ = ["key_names", "require_columns"]


def key_names(by: object, told: Sequence[str], *, where: str) -> tuple[str, ...]:
    """The key columns as a user wrote them.

    Parameters
    ----------
    by : str or sequence of str
    told : sequence of str
        Columns of the result that are there by themselves.
    where : str
        For the error.

    Raises
    ------
    SpecError
        ``NOT_A_NAME``, or ``NAME_TAKEN``: to Spark, upper and lower case are one.
    """
    names = parse_names(by, parameter="by", where=where)
    folded = [name.lower() for name in names]
    taken = [name for name in names if folded.count(name.lower()) > 1 or name.lower() in told]
    if taken:
        raise SpecError(
            "NAME_TAKEN",
            f"a name stands for two columns of the result: {', '.join(dict.fromkeys(taken))}",
            where=where,
            got=f"by={names!r}",
            expected=f"names unlike one another and unlike {', '.join(told)}",
            fix="leave it out where it is in the result by itself, or rename the key column before",
        )
    return names


def require_columns(names: Sequence[str], there: Sequence[str], *, role: str, where: str) -> None:
    """Refuse columns that do not exist.

    Raises
    ------
    ColumnNotFound
    """
    for name in names:
        if name not in there:
            raise ColumnNotFound(name, there, where=where, role=role)
