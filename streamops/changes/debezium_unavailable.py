"""Values that a connector did not send, and what stands in their place."""

from __future__ import annotations

import base64
import json
import re
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F

__all__ = ["may_stand_in", "stands_in", "without"]


def stands_in(value: Column, placeholder: str) -> Column:
    """Whether a value, as text of JSON, is the placeholder in the form of the column's type."""
    plain = F.when(value.rlike(r"^[\[{]"), F.regexp_replace(value, r"\s", "")).otherwise(value)
    return F.coalesce(plain.isin(*_forms(placeholder)), F.lit(False))


def may_stand_in(row: Column, placeholder: str) -> Column:
    """Whether a row, as text of JSON, needs a look: one of the forms may be in it."""
    raw = placeholder.encode()
    quoted = json.dumps(placeholder, ensure_ascii=False)[1:-1]
    marks = (quoted, base64.b64encode(raw).decode(), raw.hex(), ",".join(map(str, raw)))
    return reduce(Column.__or__, (F.contains(row, F.lit(mark)) for mark in marks))


def without(record: Column, placeholder: str) -> Column:
    """The record with null for the placeholder, which may not be of the column's type."""
    quoted = json.dumps(placeholder, ensure_ascii=False)
    # A whole string of JSON, and no name in it: no backslash before, no colon after.
    pattern = rf"(?<!\\)\Q{quoted}\E(?!\s*:)"
    replaced = F.regexp_replace(record, pattern, "null")
    return F.when(F.contains(record, F.lit(quoted)), replaced).otherwise(record)


def _forms(placeholder: str) -> list[str]:
    """What is sent for text; bytes in base64 and hex; arrays of text; maps; arrays of numbers."""
    raw = placeholder.encode()
    plain = re.sub(r"\s", "", json.dumps(placeholder, ensure_ascii=False))
    return [
        placeholder,
        base64.b64encode(raw).decode(),
        raw.hex(),
        f"[{plain}]",
        f"{{{plain}:{plain}}}",
        f"[{','.join(map(str, raw))}]",
    ]
