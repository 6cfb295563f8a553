"""Exceptions with a stable code and five facts, and the conditions under which they are raised.

Every error contains *what* is wrong, *where*, what was *got*, what was *expected* and how to
*fix* it. The message is formatted here and may change. The code is stable: tests and users match
on it. A code classifies; which parameter or column it was is a fact of the error.

``conditions.py`` of each package lists its conditions. ``docs/errors.md`` is made from these lists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ContextDecorator
from dataclasses import dataclass
from difflib import get_close_matches
from inspect import isfunction
from string import Formatter
from typing import Any, Generic, TypeVar


class StreamopsError(Exception):
    """Base class of all errors of streamops.

    Parameters
    ----------
    code : str
        A stable identifier such as ``"PARAMETER_OUT_OF_RANGE"``.
    what : str
        One sentence: what is wrong.
    where : str
        The operator, file or state that it concerns. :class:`located` fills it where it is left out.
    at : str
        A part of it, such as a column or a side of a join.
    got, expected : object
        What was found, and what is accepted.
    fix : str
        How to correct it.
    facts : dict
        The values in these texts, by name.
    """

    def __init__(
        self,
        code: str,
        what: str,
        *,
        got: Any,
        expected: Any,
        fix: str,
        where: str = "",
        at: str = "",
        facts: Any = None,
    ) -> None:
        self.code = code
        self.what = what
        self.got = got
        self.expected = expected
        self.fix = fix
        self.facts = facts or {}
        self._operator, self._at = where, at
        super().__init__()
        self.locate()

    def locate(self, where: str = "", at: str = "") -> None:
        """Fill the location, unless it is known; ``at`` is a part of it that contains the known part."""
        if not self._operator:
            self._operator = where
            self._at = ", ".join(filter(None, (at, self._at)))
        self.where = ", ".join(filter(None, (self._operator, self._at)))
        self.args = (
            f"[{self.code}] {self.where}{': ' if self.where else ''}{self.what}\n"
            f"  got:       {self.got}\n"
            f"  expected:  {self.expected}\n"
            f"  fix:       {self.fix}\n"
            f"  see:       docs/errors.md#{self.code.lower()}",
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors of workers are pickled to the driver: rebuild them from their facts instead of
        # from the formatted message.
        facts = {key: getattr(self, key) for key in ("got", "expected", "fix", "facts")}
        facts |= {"where": self._operator, "at": self._at}
        return _rebuild, (type(self), self.code, self.what, facts)

    def replace(self, **changes: Any) -> StreamopsError:
        """Return the same error with other facts, such as another remedy: ``fix=...``."""
        rebuild, (*arguments, facts) = self.__reduce__()
        error: StreamopsError = rebuild(*arguments, facts | changes)
        return error


def _rebuild(error_type: type[StreamopsError], code: str, what: str, facts: dict[str, Any]) -> Any:
    error = error_type.__new__(error_type)
    StreamopsError.__init__(error, code, what, **facts)
    return error


def closest(name: str, names: Iterable[str], cutoff: float = 0.6) -> list[str]:
    """The name that is probably meant, or none. Two letters that are exchanged are one mistake.

    Examples
    --------
    >>> closest("dealy", ["early", "delay"]), closest("x", ["delay"])
    (['delay'], [])
    """
    known = list(names)
    exchanged = {name[:n] + name[n : n + 2][::-1] + name[n + 2 :] for n in range(len(name) - 1)}
    found = [other for other in known if other in exchanged]
    return found[:1] or get_close_matches(name, known, n=1, cutoff=cutoff)


class located(ContextDecorator):
    """A block or a function whose errors are at this place, unless they know theirs.

    Parameters
    ----------
    where : str
        The operator, function or sink, as users call it.
    at : str
        A part of it, such as a column or a side of a join, if an outer block knows the rest.

    Examples
    --------
    >>> with located("windows.tumbling"), located(at="column 'v'"):
    ...     raise SpecError("X", "it is odd", got=1, expected=2, fix="add 1")
    Traceback (most recent call last):
    streamops.kernel.errors.SpecError: [X] windows.tumbling, column 'v': it is odd
      got:       1
      expected:  2
      fix:       add 1
      see:       docs/errors.md#x
    """

    def __init__(self, where: str = "", *, at: str = "") -> None:
        self.where, self.at = where, at

    def __enter__(self) -> None:
        """Nothing to do."""

    def __exit__(self, _: object, error: BaseException | None, traceback: object) -> None:
        """Tell the error where it was raised."""
        if isinstance(error, StreamopsError):
            error.locate(self.where, self.at)


def located_methods(name: str) -> Callable[[_Class], _Class]:
    """Decorate a class of the public interface: errors of its functions are at ``name``."""

    def decorate(cls: _Class) -> _Class:
        for key, value in list(vars(cls).items()):
            if isfunction(value) and (not key.startswith("_") or key in _CALLED):
                setattr(cls, key, located(name)(value))
        return cls

    return decorate


_Class = TypeVar("_Class", bound=type)
_CALLED = ("__init__", "__post_init__", "__call__")


class SpecError(StreamopsError, ValueError):
    """A parameter of an operator is out of range or contradicts another."""


class CallError(SpecError, TypeError):
    """A call does not fit the signature: an unknown parameter, or one that is missing."""


class SchemaError(StreamopsError, ValueError):
    """A column exists but cannot be used as requested."""


class ColumnNotFound(SchemaError):
    """A named column does not exist in the frame."""


class WatermarkError(StreamopsError, ValueError):
    """A streaming frame has no watermark, or one that the operator does not support."""


class StateFormatError(StreamopsError):
    """The state in the checkpoint has another format, or was written with other parameters."""


class CheckpointError(StreamopsError):
    """A checkpoint cannot be read or rewritten."""


class SketchFormatError(StreamopsError, ValueError):
    """Bytes that are not a valid sketch of the expected type."""


class CapacityError(StreamopsError):
    """A configured limit was reached, and the operator is configured to fail."""


class FunctionError(StreamopsError):
    """A function of the user raised an exception, or returned something that cannot be used."""


class ChangeStreamError(StreamopsError, ValueError):
    """A change stream is inconsistent, such as a preimage that was never emitted."""


class SinkError(StreamopsError):
    """A sink refused a micro-batch: another run, another checkpoint, or a target that does not fit."""


class RequirementError(StreamopsError, RuntimeError):
    """Something outside the library is missing: Java, RocksDB, protobuf, a Spark version."""


_Error = TypeVar("_Error", bound=StreamopsError, covariant=True)
_Other = TypeVar("_Other", bound=StreamopsError)


@dataclass(frozen=True, slots=True)
class Condition(Generic[_Error]):
    """A situation in which an error is raised, with templates of the texts of the error.

    A template names facts in braces, as in ``"column {column!r} has no unit"``. A fact is a plain
    name: nothing is looked up in a value, and braces in a value have no meaning.
    """

    code: str
    error_type: type[_Error]
    what: str
    expected: str
    fix: str

    def __post_init__(self) -> None:
        for template in (self.what, self.expected, self.fix):
            for _, name, form, _ in Formatter().parse(template):
                if name is not None and (not name.isidentifier() or "{" in str(form)):
                    message = f"{self.code}: {{{name}}} is not the name of a fact"
                    raise ValueError(message)

    def error(self, *, got: object, where: str = "", at: str = "", **facts: object) -> _Error:
        """Return the error, with these facts."""
        what, expected, fix = (
            text.format_map(facts) for text in (self.what, self.expected, self.fix)
        )
        return self.error_type(
            self.code, what, where=where, at=at, got=got, expected=expected, fix=fix, facts=facts
        )


@dataclass(frozen=True, slots=True)
class Code(Generic[_Error]):
    """A stable identifier, and the class of its errors. Calling it defines a condition."""

    name: str
    error_type: type[_Error]

    def __call__(self, what: str, expected: str, fix: str) -> Condition[_Error]:
        """Define a condition of this code."""
        return Condition(self.name, self.error_type, what, expected, fix)

    def of(self, error_type: type[_Other]) -> Code[_Other]:
        """Return the code for conditions of another class."""
        return Code(self.name, error_type)
