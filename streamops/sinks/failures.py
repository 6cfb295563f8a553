"""Errors that several sinks raise, and what errors must not show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from streamops.kernel.conninfo import mask
from streamops.kernel.errors import SinkError, StreamopsError
from streamops.sinks import conditions


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
            facts = {name: mask(str(value), secrets) for name, value in error.facts.items()}
            raise error.replace(got=mask(str(error.got), secrets), facts=facts) from None
        raise RuntimeError(text) from None


def unavailable(target: str, error: Exception, *, hint: str = "") -> SinkError:
    """The error about a target that cannot be reached."""
    return conditions.TARGET_UNAVAILABLE.error(
        target=target, hint=hint, got=f"{type(error).__name__}: {error}"
    )


def refused(target: str, error: Exception) -> SinkError:
    """The error about a target that does not accept the rows."""
    return conditions.ROWS_REFUSED.error(target=target, got=f"{type(error).__name__}: {error}")


def columns_differ(
    new: Sequence[str], required: Sequence[str], known: Sequence[str], *, note: str = ""
) -> SinkError:
    """The error about columns that only the rows have, or that only the table has and requires."""
    return conditions.TARGET_COLUMNS.error(
        note=note,
        columns=", ".join(known),
        got=f"not in the table: {', '.join(new) or 'none'}; required by the table, and not in the rows: "
        f"{', '.join(required) or 'none'}",
    )


def type_differs(name: str, got: object, found: object, expected: object) -> SinkError:
    """The error about a column of the table that does not take the values of the rows."""
    return conditions.COLUMN_TOO_NARROW.error(
        column=name, expected=expected, got=f"{got} for {found}"
    )
