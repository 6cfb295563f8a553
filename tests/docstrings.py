"""Examples in docstrings that are shown, and not run: they need a stream, a server or files."""

from __future__ import annotations

import ast
import doctest
from collections.abc import Iterator

# What examples use, and do not define.
ABSENT = {"clicks", "days", "events", "log", "logins", "minutes", "pages", "payments", "readings"}
ABSENT |= {"prices", "row", "rows", "searches", "trades", "views"}
ABSENT |= {"spark", "query", "path", "reader", "url", "hourly", "Increases"}
# What connects, needs a session, or reads files that are not there.
OUTSIDE = {
    "erasure.KeyTable",
    "erasure.search_files",
    "local_session",
    "observe.explain",
    "observe.supervise",
    "overlap",
    "prometheus_client.start_http_server",
    "sinks.read_parquet",
    "sinks.rewind",
    "sinks.tokens",
    "sinks.wait_for",
    "sinks.wait_for_sql",
    "sources.outbox",
    "sources.replay",
    "daily.check",
    "state.check",
    "state.pending",
    "state.read",
}

_get_examples = doctest.DocTestParser.get_examples


def get_examples(
    parser: doctest.DocTestParser, string: str, name: str = "<string>"
) -> list[doctest.Example]:
    """Parse the examples of a docstring, and mark those that are not run."""
    found = _get_examples(parser, string, name)
    missing = set(ABSENT)
    for example in found:
        tree = ast.parse(example.source)
        if isinstance(tree.body[0], ast.FunctionDef):
            continue  # it is defined, and not called
        assigned = set(_names(tree, ast.Store))
        used = set(_names(tree, ast.Load)) - assigned
        if missing & used or OUTSIDE.intersection(_called(tree)):
            example.options[doctest.SKIP] = True
            missing |= assigned
        else:
            missing -= assigned
    return found


def install() -> None:
    """Parse the docstrings of all doctests in this way, those of pytest and of ``doctest.testmod``."""
    doctest.DocTestParser.get_examples = get_examples  # type: ignore[method-assign]


def _names(tree: ast.AST, context: type[ast.expr_context]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, context):
            yield node.id


def _called(tree: ast.AST) -> Iterator[str]:
    return (ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call))
