"""Debezium's records, one at a time, in simple Python."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Change = tuple[Any, ...]
PLACEHOLDER = "__debezium_unavailable_value"


@dataclass
class DebeziumOracle:
    """The changes of a record: (change type, row, sequence, snapshot, unavailable); or why there are none.

    Rows are of columns ``id`` (the key, a number), ``name`` (text), ``tags`` (a list of numbers).
    """

    preimages: str = "drop"
    absent: str = "null"

    def read(self, value: str | None, key: str | None) -> list[Change] | str | None:
        """Changes, a reason, or None for an ignored record."""
        if value is None:
            return None
        try:
            record = json.loads(value)
        except ValueError:
            return "unparsable_json"
        if record is None:
            return None
        if not isinstance(record, dict):
            return "unparsable_json"
        if "payload" in record:
            if record["payload"] is None and set(record) <= {"schema", "payload"}:
                return None
            record = record["payload"] if record["payload"] is not None else record
        op = record.get("op")
        if op is None:
            return "no_operation"
        if op == "m":
            return None
        if op == "t":
            sequence = position(record.get("source") or {}, record.get("transaction") or {}, op)
            nothing = {"id": None, "name": None, "tags": None}
            return [("truncate", nothing, sequence, False, [])] if sequence else "no_sequence"
        if op not in {"c", "u", "d", "r"}:
            return "unknown_operation"
        before, after = record.get("before"), record.get("after")
        if after is None if op != "d" else before is None and key is None:
            return "no_row"
        for row in (before, after):
            if row is not None and not fits(row):
                return "row_does_not_fit"
        if op != "d" and self.absent == "route" and set(after) < {"id", "name", "tags"}:
            return "row_does_not_fit"
        changes = self._deleted(before, key) if op == "d" else self._saved(op, before, after)
        if any(change[1]["id"] is None for change in changes):
            return "null_key"
        if self.preimages == "publish" and op in {"u", "d"} and not self._has_preimage(record):
            return "no_row_before"
        for change_type, _, missing in changes:
            if change_type == "insert" and any(name in after for name in missing):
                return "value_not_sent"
        sequence = position(record.get("source") or {}, record.get("transaction") or {}, op)
        if sequence is None:
            return "no_sequence"
        return [
            (change_type, row, sequence, op == "r", missing)
            for change_type, row, missing in changes
        ]

    def _has_preimage(self, record: Mapping[str, Any]) -> bool:
        """Whether the row before is complete; Postgres may send only its key."""
        before = record.get("before") or {}
        was, missing_before = self._cleaned(before)
        if was["id"] is None or missing_before:
            return False
        if record["op"] == "u" and any(
            was[name] is None for name in self._cleaned(record["after"])[1]
        ):
            return False
        if (record.get("source") or {}).get("connector") != "postgresql":
            return True
        return any(value is not None for name, value in before.items() if name != "id")

    def _deleted(self, before: Any, key: Any) -> list[Change]:
        try:
            named = json.loads(key) if key is not None else {}
        except ValueError:
            named = {}
        named = named.get("payload", named)
        row, _ = self._cleaned(before or {})
        if row["id"] is None:
            row["id"] = named.get("id")
        return [("delete", row, [])]

    def _saved(self, op: str, before: Any, after: Any) -> list[Change]:
        row, missing = self._cleaned(after)
        if op != "u":
            return [("insert", row, missing)]
        if before is not None:
            was, missing_before = self._cleaned(before)
            had = [name for name in missing if name not in missing_before and was[name] is not None]
            row |= {name: was[name] for name in had}
            missing = [name for name in missing if name not in had]
            if was["id"] is not None and row["id"] is not None and was["id"] != row["id"]:
                return [("delete", was, []), ("insert", row, missing)]
            if self.preimages == "publish" and was["id"] is not None:
                return [
                    ("update_preimage", was, missing_before),
                    ("update_postimage", row, missing),
                ]
        return [("update_postimage", row, missing)]

    def _cleaned(self, image: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
        row, missing = {}, []
        for name in ("id", "name", "tags"):
            value = image.get(name)
            is_lacking = value in (PLACEHOLDER, [PLACEHOLDER], list(PLACEHOLDER.encode()))
            if is_lacking or (self.absent == "unavailable" and name not in image):
                missing.append(name)
                value = None
            row[name] = value
        return row, missing


def fits(row: Any) -> bool:
    """Whether a row of JSON has values of the columns' types."""
    if not isinstance(row, dict):
        return False
    number, tags = row.get("id"), row.get("tags")
    is_lacking = tags in (PLACEHOLDER, [PLACEHOLDER])
    return (number is None or type(number) is int) and (
        tags is None
        or is_lacking
        or (isinstance(tags, list) and all(type(tag) is int or tag is None for tag in tags))
    )


def position(
    source: Mapping[str, Any], transaction: Mapping[str, Any], op: str
) -> tuple[int, int, int] | None:
    """The position of the change in its log."""
    order = int(transaction.get("total_order") or 0)
    match source:
        case {"connector": "postgresql", "lsn": int(lsn)}:
            return (0, lsn, order)
        case {"connector": "oracle", "scn": str(scn)}:
            return (0, int(scn), order)
        case {"connector": "mysql" | "mariadb", "file": str(file), "pos": pos} if file:
            return (int(file.rpartition(".")[2]), pos, source.get("row", 0))
        case {"connector": "sqlserver", "change_lsn": str(lsn)}:
            file, block, slot = (int(part, 16) for part in lsn.split(":"))
            return (file, block * 65536 + slot, source.get("event_serial_no", 0))
        case {"connector": "postgresql" | "oracle" | "mysql" | "mariadb" | "sqlserver"}:
            return (0, 0, 0) if op == "r" else None
    return None
