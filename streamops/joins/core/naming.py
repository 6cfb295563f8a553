"""Names of the columns of joined rows."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from streamops.kernel.errors import SchemaError

__all__ = ["Names", "named"]


@dataclass(frozen=True, slots=True)
class Names:
    """Columns of the joined rows, and what the right ones are called there.

    Parameters
    ----------
    schema : Schema
        All columns of the left side, then those of the right one but for its key columns.
    right : tuple of (str, str)
        Column of the right side, and its name among them.
    """

    schema: pa.Schema
    right: tuple[tuple[str, str], ...]


def named(left: pa.Schema, right: pa.Schema, by: tuple[tuple[str, str], ...], where: str) -> Names:
    """Name the columns: what is taken, as Spark compares names, gets the suffix ``_right``.

    Raises
    ------
    SchemaError
        ``NAME_TAKEN``: that is taken, too.
    """
    taken = {name.lower() for name in left.names}
    keys = {column for _, column in by}
    fields, names = list(left), []
    for field in right:
        if field.name in keys:
            continue
        name = field.name if field.name.lower() not in taken else f"{field.name}_right"
        if name.lower() in taken:
            raise SchemaError(
                "NAME_TAKEN",
                f"column {field.name!r} of the right side has no name in the result",
                where=where,
                got=f"{name!r} is a column, too",
                expected="a name that is free",
                fix=f"rename the column before the join: "
                f"right.withColumnRenamed({field.name!r}, ...)",
            )
        taken.add(name.lower())
        fields.append(field.with_name(name))
        names.append((field.name, name))
    return Names(pa.schema(fields), tuple(names))
