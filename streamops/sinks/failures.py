"""Errors that several sinks raise, and what errors must not show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from streamops.kernel.conninfo import mask
from streamops.kernel.errors import SinkError, StreamopsError


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
