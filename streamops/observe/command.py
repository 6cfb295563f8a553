"""The command ``streamops why``: an explanation for a checkpoint and the operator of a job."""

from __future__ import annotations

import datetime as dt
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from streamops.observe import conditions
from streamops.observe.explain import explain
from streamops.observe.explanation import Explanation
from streamops.observe.log_files import files
from streamops.observe.plan import RecordedSource, read_plan
from streamops.observe.question import assign, split_guards
from streamops.state.checkpoint import open_checkpoint


def answer(
    checkpoint: str,
    job: str,
    *,
    sources: Sequence[str] = (),
    where: Sequence[str] = (),
    null: Sequence[str] = (),
    window: str | None = None,
    since: str | None = None,
) -> Explanation:
    """Explain a key, whose values are text. They are converted by the types of the input, and not evaluated.

    Parameters
    ----------
    checkpoint, job : str
        The checkpoint, and ``module:name`` of the operator or of the chain.
    sources : sequence of str
        ``module:name`` of each source; by default, files of Parquet.
    where, null : sequence of str
        ``column=value`` for key columns, and names of those that are null.
    window : str, optional
        An instant in a window, or ``start/end``.
    since : str, optional
        The first micro-batch to read: its number, or the time since which it was planned.
    """
    operator = _load(job)
    _, chain = split_guards(operator)
    inputs = len(chain[0].spec.inputs)
    found = [_load(name) for name in sources] or [files() for _ in range(inputs)]
    wrong = [of for of in found if not isinstance(of, RecordedSource)]
    if wrong:
        raise conditions.NOT_A_JOB.error(what="source", got=f"a {type(wrong[0]).__name__}")
    opened = open_checkpoint(checkpoint)
    plan = read_plan(opened)
    values: dict[str, Any] = dict.fromkeys(null)
    if plan and where:
        parts, _ = assign(found, inputs, opened, plan, 0)
        schema = next(filter(None, (of.schema_of(r) for of, r in parts[0])), pa.schema([]))
        for term in where:
            name, separator, text = term.partition("=")
            if not separator or name not in schema.names:
                raise conditions.NOT_A_TERM.error(columns=", ".join(schema.names), got=term)
            if name in values:
                raise conditions.TWO_TERMS.error(got=f"{name}: another value or null, and {term}")
            values[name] = _convert(text, name, schema.field(name).type)
    first: Any = since
    if since is not None:
        first = int(since) if since.isdecimal() else _convert(since, "since", _INSTANT)
    return explain(checkpoint, operator, found, where=values, window=window, since=first)


_INSTANT = pa.timestamp("us", tz="UTC")


def _load(name: str) -> Any:
    """The object of a job, which is imported from the working directory or from what is installed."""
    module, _, path = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    module = module or ":"
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if not f"{module}.".startswith(f"{error.name}."):
            raise  # the job is there, and lacks a package
        raise conditions.JOB_NOT_FOUND.error(got=f"{name}: {error}") from error
    try:
        for part in path.split("."):
            found = getattr(found, part)
    except AttributeError as error:
        raise conditions.JOB_NOT_FOUND.error(got=f"{name}: {error}") from error
    return found


def _convert(text: str, name: str, type_: pa.DataType) -> Any:
    try:
        if pa.types.is_timestamp(type_):
            return dt.datetime.fromisoformat(text)
        return pa.scalar(text).cast(type_).as_py()
    except (pa.ArrowException, ValueError) as error:
        raise conditions.NOT_A_VALUE.error(column=name, type=type_, got=text) from error
