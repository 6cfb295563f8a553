"""Whether a Delta table still has the rows that a ledger entry counts.

The application transactions of a table, in which the entry is stored, only grow: they stay when the table is
restored, overwritten or emptied. So the commits after the one with the entry are read, the newest first.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import astuple, dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamops.sinks.core.ledger import Entry

_BYTES = 7  # fewer than the eight of a signed integer, so that none is negative


def to_integers(entry: Entry) -> list[int]:
    """Return the entry as integers: the length of its text in bytes, then seven bytes each.

    Without the offsets, whose text may be long.

    Examples
    --------
    >>> numbers = to_integers(Entry("query", 1, "run", 0, rows=2, digest=-7))
    >>> numbers[0], from_integers(dict(enumerate(numbers)).get)
    (33, Entry(query='query', generation=1, run='run', batch=0, rows=2, digest=-7, target='', target_id='', former=(), offsets=()))
    """
    text = json.dumps(astuple(entry)[:-1], separators=(",", ":"), ensure_ascii=False).encode()
    chunks = (text[at : at + _BYTES] for at in range(0, len(text), _BYTES))
    return [len(text), *(int.from_bytes(chunk, "big") for chunk in chunks)]


def from_integers(read: Callable[[int], int | None]) -> Entry | None:
    """Return an entry from its integers, which `read` returns by position.

    None if the first one is missing. Integers beyond the length are of a longer, older entry.
    """
    length = read(0)
    if length is None:
        return None
    text = b""
    for position, start in enumerate(range(0, length, _BYTES), 1):
        number = read(position)
        if number is None:
            return None
        text += number.to_bytes(min(_BYTES, length - start), "big")
    return Entry.of(*json.loads(text))


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


_WRITTEN = {
    "appendOnly",
    "changeDataFeed",
    "checkConstraints",
    "columnMapping",
    "deletionVectors",
    "generatedColumns",
    "invariants",
    "timestampNtz",
    "v2Checkpoint",
    "variantType",
    "variantType-preview",
}
"""Features that deltalake writes, or that can be switched off without being removed."""

_LEGACY_IDENTITY = 6
"""The version of the protocol whose writers fill identity columns."""

_NULLS = pa.array(["", "__HIVE_DEFAULT_PARTITION__"])
"""Texts that are null as the value of a partition."""

_CHARS = "__CHAR_VARCHAR_TYPE_STRING"
"""Metadata of Spark: the type of a text column that was declared with a length."""


def unsupported_features(
    protocol: Any, settings: Mapping[str, str], has_deletion_vectors: bool
) -> list[str]:
    """Return the features of a table that this sink does not write.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> protocol = SimpleNamespace(min_writer_version=7, writer_features=["rowTracking"])
    >>> unsupported_features(protocol, {"delta.columnMapping.mode": "name"}, False)
    ['columnMapping', 'rowTracking']
    """
    features = protocol.writer_features
    if features is None:
        features = ["identityColumns"] if protocol.min_writer_version >= _LEGACY_IDENTITY else []
    found = set(features) - _WRITTEN
    if settings.get("delta.columnMapping.mode", "none").lower() != "none":
        found.add("columnMapping")
    if has_deletion_vectors or is_on(settings, "delta.enableDeletionVectors"):
        found.add("deletionVectors")
    found |= _REMOVING & set(settings)
    as_read = {**settings, **respelled(settings)}
    found |= {n for n, form in _FORMS.items() if n in as_read and not form.fullmatch(as_read[n])}
    return sorted(found)


_BOOLEAN = re.compile("true|false")
_FORMS = {
    **{f"delta.{n}": _BOOLEAN for n in ("appendOnly", "enableChangeDataFeed", "enableExpiredLogCleanup")},
    "delta.logRetentionDuration": re.compile(r"interval \d+ (week|day|hour|minute|second)s?"),
}  # fmt: skip
"""How deltalake reads properties. In another form, it takes the default: it removes rows, or the log."""

_INTERVAL = re.compile(r"(?:interval)?((?: ?\d+ (?:week|day|hour|minute|second)s?)+)")
_SECONDS = {"week": 604_800, "day": 86_400, "hour": 3_600, "minute": 60, "second": 1}

_REMOVING = {"delta.setTransactionRetentionDuration"}
"""Properties by which others remove the ledger."""


def is_on(settings: Mapping[str, str], name: str) -> bool:
    """Whether a property is on, as Spark reads it.

    Examples
    --------
    >>> is_on({"delta.appendOnly": "TRUE"}, "delta.appendOnly")
    True
    """
    return settings.get(name, "false").lower() == "true"


def respelled(settings: Mapping[str, str]) -> dict[str, str]:
    """The properties that Spark reads and deltalake does not, in a form that both read as the same.

    Examples
    --------
    >>> respelled({"delta.appendOnly": "True", "delta.logRetentionDuration": "1 Week 2 DAYS"})
    {'delta.appendOnly': 'true', 'delta.logRetentionDuration': 'interval 777600 seconds'}
    """
    result = {}
    for name, form in _FORMS.items():
        text = settings.get(name, "")
        spelled = " ".join(text.lower().replace("'", "").split())
        parts = _INTERVAL.fullmatch(spelled)
        if parts:  # deltalake reads the first one only
            found = re.findall(r"(\d+) ([a-z]+?)s?\b", parts[1])
            spelled = f"interval {sum(int(n) * _SECONDS[unit] for n, unit in found)} seconds"
        if not form.fullmatch(text) and form.fullmatch(spelled):
            result[name] = spelled
    return result


def remedies(features: Iterable[str]) -> str:
    """How to remove features that are not written, each after "; or ". Empty if none is known."""
    texts = {
        "deletionVectors": "ALTER TABLE ... SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'false'), then "
        "REORG TABLE ... APPLY (PURGE)",
        **{name: f"ALTER TABLE ... UNSET TBLPROPERTIES ('{name}')" for name in {*_FORMS, *_REMOVING}},
    }  # fmt: skip
    drop = "ALTER TABLE ... DROP FEATURE {}, after SET TBLPROPERTIES has switched it off"
    return "".join(f"; or {texts.get(name, drop.format(name))}" for name in features)


def must_be_given(fields: Iterable[Any]) -> list[str]:
    """Columns that rows must have: the ones that cannot be null, or that deltalake does not compute."""
    return [
        field.name
        for field in fields
        if not field.nullable or "delta.generationExpression" in (field.metadata or {})
    ]


def find_unfit(
    rows: pa.Table, fields: Iterable[Any], partitions: Iterable[str]
) -> tuple[str, str, str] | None:
    """Return a column whose values the table does not take, what they are, and what it takes.

    Parameters
    ----------
    rows : Table
        Rows in the types of the table.
    fields : iterable of Field
        The columns of the table.
    partitions : iterable of str
        The columns by which its files are partitioned.
    """
    for field in fields:
        declared = (field.metadata or {}).get(_CHARS)
        if declared is None or field.name not in rows.column_names:
            continue
        length = re.fullmatch(r"varchar\((\d+)\)", str(declared))
        if length is None:
            return field.name, "text", f"{declared}, which Spark fills with blanks or checks"
        longest = pc.max(pc.utf8_length(rows.column(field.name))).as_py() or 0
        if longest > int(length[1]):
            return field.name, f"text of {longest} characters", str(declared)
    for name in partitions:
        if name not in rows.column_names:
            continue
        values = rows.column(name)
        if not _is_exact_in_a_path(values.type):
            expected = "a partition by an integer, date, boolean, timestamp_ntz or text"
            return name, f"a partition by {values.type}, whose values have no exact text", expected
        if pa.types.is_temporal(values.type) and _is_beyond(values):
            return name, "an instant beyond the years 1 to 9999 in a partition", "other instants"
        if pa.types.is_string(values.type) and pc.any(pc.is_in(values, _NULLS)).as_py():
            return name, "a text that stands for null as the value of a partition", "other text"
    return None


_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
_MICROS_PER_DAY = 86_400_000_000


def _is_beyond(values: pa.ChunkedArray) -> bool:
    """Whether there are dates or timestamps whose year does not have four digits."""
    is_date = pa.types.is_date32(values.type)
    whole, day = (pa.int32(), 1) if is_date else (pa.int64(), _MICROS_PER_DAY)
    ends = pc.min_max(values.cast(whole))
    low, high = ends["min"].as_py(), ends["max"].as_py()
    return low is not None and not _FIRST_DAY * day <= low <= high < (_LAST_DAY + 1) * day


def _is_exact_in_a_path(dtype: pa.DataType) -> bool:
    """Whether deltalake writes values of partitions so that every reader finds the same ones.

    It writes escapes for bytes and does not read them, and two signs in negative decimals. A timestamp has no
    time zone there, and Spark reads it in that of the session. Floats have names of files of any length.
    """
    return bool(
        pa.types.is_integer(dtype)
        or pa.types.is_boolean(dtype)
        or pa.types.is_date32(dtype)
        or pa.types.is_string(dtype)
        or (pa.types.is_decimal(dtype) and dtype.scale == 0)
        or dtype == pa.timestamp("us")
    )
