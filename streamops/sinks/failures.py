"""Errors that several sinks raise, and what errors must not show."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from urllib.parse import unquote

from streamops.kernel.conninfo import mask
from streamops.kernel.errors import SinkError, StreamopsError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)(.*)", re.DOTALL)
_USER = re.compile("[^@/:]*(?::([^@]*))?@")


def public_path(path: str) -> str:
    """A path without what can be a secret: user, password and query of a URL.

    Examples
    --------
    >>> public_path("s3://user:sec/r#t@bucket/folder?token=x"), public_path("/a?b")
    ('s3://bucket/folder', '/a?b')
    """
    scheme, rest, _ = _split(path)
    return scheme + rest


def secrets_of(path: str) -> list[str]:
    """What can be a secret in a path: password and query of a URL, as they are written and as they are sent."""
    return [form for text in _split(path)[2] for form in (text, unquote(text))]


def _split(path: str) -> tuple[str, str, list[str]]:
    """The scheme of a path, the part of the rest that is public, and what can be a secret."""
    url = _SCHEME.fullmatch(path)
    if url is None:
        return "", path, []
    scheme, rest = url.groups()
    user = _USER.match(rest)
    public, _, query = re.split(r"([?#])", rest[user.end() if user else 0 :] + "?", maxsplit=1)
    if (
        user and user[1] is not None and "@" in public + query
    ):  # where the password ends is not certain
        return scheme, "***", [rest]
    values = [piece.partition("=")[2] for piece in query[:-1].split("&")]
    secrets = [user[1] if user else None, query[:-1], *(v for v in values if len(v) >= 8)]
    return scheme, public, [text for text in secrets if text]


@contextmanager
def hide(*secrets: str | None) -> Iterator[None]:
    """Remove secrets from the messages of exceptions."""
    try:
        yield
    except Exception as error:
        text = mask(str(error), secrets)
        if text == str(error):
            raise
        if isinstance(error, StreamopsError):
            build, (error_type, code, what, facts) = error.__reduce__()
            raise build(
                error_type, code, what, {**facts, "got": mask(str(error.got), secrets)}
            ) from None
        raise RuntimeError(text) from None


def unavailable(target: str, error: Exception, *, where: str, hint: str = "") -> SinkError:
    """The error about a target that cannot be reached."""
    return SinkError(
        "TARGET_UNAVAILABLE",
        f"{target} did not take the micro-batch",
        where=where,
        got=f"{type(error).__name__}: {error}",
        expected="a target that is reachable and accepts the transaction",
        fix=f"{hint}nothing is lost: start the query again once the cause is removed. If the connection broke in the "
        "commit, the target may have the micro-batch; the ledger knows, and it is not written twice",
    )


def refused(target: str, error: Exception, *, where: str) -> SinkError:
    """The error about a target that does not accept the rows."""
    return SinkError(
        "TARGET_REFUSED",
        f"{target} refused the rows of the micro-batch",
        where=where,
        got=f"{type(error).__name__}: {error}",
        expected="rows that satisfy the constraints of the table",
        fix="nothing was written: change the constraint, or filter or convert these rows before the sink",
    )


def target_missing(
    target: str,
    fix: str,
    *,
    where: str,
    what: str = "the table",
    expected: str = "a table, because of missing='refuse'",
) -> SinkError:
    """The error about a target that does not exist, and may not be created."""
    return SinkError(
        "TARGET_MISSING",
        f"{what} does not exist",
        where=where,
        got=target,
        expected=expected,
        fix=fix,
    )


def columns_differ(
    new: Sequence[str], required: Sequence[str], known: Sequence[str], *, where: str, note: str = ""
) -> SinkError:
    """The error about columns that only the rows have, or that only the table has and requires."""
    return SinkError(
        "TARGET_COLUMNS",
        "the columns of the table and of the rows differ",
        where=where,
        got=f"not in the table: {', '.join(new) or 'none'}; required by the table, and not in the rows: "
        f"{', '.join(required) or 'none'}",
        expected=f"columns {', '.join(known)}",
        fix=f"select the columns of the table; columns='add' adds new columns to it{note}",
    )


def type_differs(
    name: str, got: object, found: object, expected: object, *, where: str
) -> SinkError:
    """The error about a column of the table that does not take the values of the rows."""
    return SinkError(
        "TARGET_TYPE",
        f"column {name!r} of the table does not take these values without loss",
        where=where,
        got=f"{got} for {found}",
        expected=expected,
        fix="cast the column of the frame, or alter the type in the table",
    )
