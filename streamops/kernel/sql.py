"""Names in the SQL of databases."""

from __future__ import annotations


def quote(name: str) -> str:
    """Quote a name.

    Examples
    --------
    >>> quote('a "b" c')
    '"a ""b"" c"'
    """
    return '"' + name.replace('"', '""') + '"'
