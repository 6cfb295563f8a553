"""Names of the columns of a joined row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from streamops.kernel.errors import SchemaError

__all__ = ["SUFFIX", "Names", "named", "refuse_reserved"]

SUFFIX = "_right"
"""What a right column's name ends with where the left has one of that name."""


@dataclass(frozen=True, slots=True)
class Names:
    """Columns of a joined row.

    Parameters
    ----------
    schema : Schema
        All columns of the left, then those of the right without its key columns.
    right : tuple of (str, str)
        Name of each of the latter in the right frame, and in the joined row.
    """

    schema: pa.Schema
    right: tuple[tuple[str, str], ...]


def named(left: pa.Schema, right: pa.Schema, by: tuple[tuple[str, str], ...], where: str) -> Names:
    """The columns of a row of the left beside one of the right that has the same key.

    The right's key columns are left out: their values are the left's. A column of the right whose
    name is taken gets the suffix ``_right``. Names are compared as Spark compares them: upper and
    lower case are one.

    Parameters
    ----------
    left, right : Schema
    by : tuple of (str, str)
        Key columns: name on the left, name on the right.
    where : str
        The operator, for the error.

    Raises
    ------
    SchemaError
        ``NAME_TAKEN``: the name with the suffix is taken as well.

    Examples
    --------
    >>> searches = pa.schema([("query", pa.int64()), ("ts", pa.int64())])
    >>> clicks = pa.schema([("query", pa.int64()), ("ts", pa.int64()), ("url", pa.string())])
    >>> joined = named(searches, clicks, (("query", "query"),), "doc")
    >>> joined.schema.names, joined.right
    (['query', 'ts', 'ts_right', 'url'], (('ts', 'ts_right'), ('url', 'url')))
    """
    keys = {name for _, name in by}
    rest = [field for field in right if field.name not in keys]
    taken = {name.lower() for name in left.names}
    # A column that keeps its name comes before one that wants it with the suffix.
    taken |= {field.name.lower() for field in rest}
    mine = {name.lower() for name in left.names}
    pairs = []
    for field in rest:
        name = field.name
        if name.lower() in mine:
            name += SUFFIX
            if name.lower() in taken:
                _refuse(field.name, name, left.names, where)
            taken.add(name.lower())
        pairs.append((field.name, name))
    joined = [right.field(own).with_name(name) for own, name in pairs]
    return Names(pa.schema([*left, *joined]), tuple(pairs))


def refuse_reserved(names: Sequence[str], added: Iterable[str], fix: str, where: str) -> None:
    """Refuse joined columns that are called as a column which the operator adds.

    Raises
    ------
    SchemaError
        ``NAME_TAKEN``.
    """
    reserved = {name.lower() for name in added}
    clashes = [name for name in names if name.lower() in reserved]
    if clashes:
        raise SchemaError(
            "NAME_TAKEN",
            f"a name stands for two columns of the result: {', '.join(clashes)}",
            where=where,
            got=f"columns {', '.join(names)}",
            expected=f"columns unlike {', '.join(sorted(reserved))}, which the join adds",
            fix=fix,
        )


def _refuse(own: str, wanted: str, left: Sequence[str], where: str) -> None:
    raise SchemaError(
        "NAME_TAKEN",
        f"the right's column {own!r} finds no name in the joined row",
        where=where,
        got=f"{own!r} on both sides, and {wanted!r} as well",
        expected=f"columns of the right unlike the left's ({', '.join(left)}), "
        f"or unlike with the suffix {SUFFIX!r}",
        fix=f"right.withColumnRenamed({own!r}, 'a name of its own') before the join",
    )
