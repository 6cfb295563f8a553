"""Whether a Delta table still has the rows that a ledger entry counts.

The application transactions of a table, in which the entry is stored, only grow: they stay when the table is
restored, overwritten or emptied. So the commits after the one with the entry are read, the newest first.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from streamops.sinks.core.identifiers import from_integers
from streamops.sinks.core.ledger import Entry

_PREFIX, SINK, ACTION = "streamops", "streamops.sink", "streamops.action"

_ROW_BY_ROW = {"MERGE", "UPDATE", "DELETE", "WRITE"}
"""Operations that remove single rows, if they have a condition. Others that remove rows remove all of them."""

_ALL_ROWS = {"", "[]", "true", '["true"]'}
"""Conditions that all rows satisfy."""


@dataclass(frozen=True, slots=True)
class Found:
    """An entry, and the commit that has removed the rows it counts; an empty text if they are there."""

    entry: Entry | None
    removed_by: str = ""


def identifier(sink: str, position: int) -> str:
    """Return the identifier of the application transaction with one integer of an entry."""
    return f"{_PREFIX}/{sink}/{position}"


def stored_entry(table: Any, sink: str) -> Entry | None:
    """Return the newest entry of a sink in the log."""
    return from_integers(lambda number: table.transaction_version(identifier(sink, number)))


def find_entry(
    table: Any, sink: str, actions: Callable[[int], Any], open_version: Callable[[int], Any]
) -> Found:
    """Return the entry that belongs to the rows of a table.

    Parameters
    ----------
    table : DeltaTable
        A version of the table.
    sink : str
        Name of the sink.
    actions : function
        The actions of a version; None if the log does not have the version any more.
    open_version : function
        An older version of the table; None if it cannot be read any more.
    """
    entry = stored_entry(table, sink)
    if entry is None:
        return Found(None)
    for version in range(table.version(), -1, -1):
        commit = actions(version)
        if commit is None or identifier(sink, 0) in _transactions(commit):
            break  # the commit of the entry, or one before all that the log still has
        operation, parameters = _operation(commit)
        if operation == "RESTORE":
            restored = _restored(table, version, parameters, open_version)
            label = f"version {version}: RESTORE"
            if restored is None:
                return Found(entry, label)
            found = find_entry(restored, sink, actions, open_version)
            if found.entry is None:
                return Found(
                    None, f"{label} to version {restored.version()}, before the first entry"
                )
            if found.entry.query == entry.query:  # whose newest run still is the one that may write
                newest = replace(found.entry, run=entry.run, generation=entry.generation)
                return replace(found, entry=newest)
            return found
        if _removes_all(commit, operation, parameters):
            return Found(entry, f"version {version}: {operation or 'no operation is named'}")
    return Found(entry)


def other_entries(table: Any, sink: str) -> dict[str, Entry]:
    """Return the entries of other sinks, which the history names as long as the log has it."""
    names = {str(commit[SINK]) for commit in table.history() if SINK in commit} - {sink}
    found = {name: stored_entry(table, name) for name in names}
    return {name: entry for name, entry in found.items() if entry is not None}


def commit_entry(commit: Any, sink: str) -> Entry | None:
    """Return the entry that a commit has."""
    return from_integers(lambda number: _transactions(commit or []).get(identifier(sink, number)))


def reader(path: str, options: Mapping[str, str] | None) -> Callable[[int], Any]:
    """Return a function that reads the actions of a version."""
    handler = importlib.import_module("deltalake.fs").DeltaStorageHandler(path, options)

    def actions(version: int) -> Any:
        try:
            with handler.open_input_stream(f"_delta_log/{version:020}.json") as stream:
                lines = stream.read().splitlines()
        except FileNotFoundError:
            return None
        return [json.loads(line) for line in lines if line.strip()]

    return actions


def _transactions(commit: Any) -> dict[str, int]:
    found = (action["txn"] for action in commit if "txn" in action)
    return {str(txn["appId"]): txn["version"] for txn in found}


def _operation(commit: Any) -> tuple[str, dict[str, Any]]:
    """The operation of a commit, and its parameters."""
    for action in commit:
        if info := action.get("commitInfo"):
            parameters = info.get("operationParameters") or {}
            return str(info.get("operation") or ""), {**parameters, ACTION: info.get(ACTION)}
    return "", {}


def _removes_all(commit: Any, operation: str, parameters: Mapping[str, Any]) -> bool:
    """Whether a commit removes rows, and is not known to keep all others."""
    removed = [action["remove"] for action in commit if "remove" in action]
    if not any(part.get("dataChange", True) for part in removed):
        return False
    if any(name.startswith(f"{_PREFIX}/") for name in _transactions(commit)):
        return bool(parameters.get(ACTION) == "replace")  # of another sink
    if operation == "MERGE":
        return False
    condition = str(parameters.get("predicate") or "").strip()
    is_partial = condition not in _ALL_ROWS
    return not (operation == "UPDATE" or (operation in _ROW_BY_ROW and is_partial))


def _restored(
    table: Any, version: int, parameters: Mapping[str, Any], open_version: Callable[[int], Any]
) -> Any:
    """The version to which a commit has restored the table: the one it names, or has the files of."""
    named = str(parameters.get("version"))
    if named.isdigit():
        return open_version(int(named))
    after = table if table.version() == version else open_version(version)
    files = after and sorted(after.file_uris())
    for number in range(version - 1, -1, -1):
        before = open_version(number)
        if before is None or sorted(before.file_uris()) == files:
            return before
    return None
