"""Files of lines that tempt readers: for each format, its contents, and whether they are read without Spark."""

from __future__ import annotations

import pyarrow as pa

SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("i", pa.int32()),
        ("n", pa.int64()),
        ("x", pa.float64()),
        ("b", pa.bool_()),
        ("d", pa.date32()),
        ("ts", pa.timestamp("us", tz="UTC")),
    ]
)

# Of JSON, the rest of the line is the plain one.
_PLAIN = '{"k":"a","i":1,"n":2,"x":0.5,"b":true,"d":"2024-01-02","ts":"2024-01-02T03:04:05Z"}'


def _json(**values: str) -> str:
    fields = ", ".join(f'"{name}": {value}' for name, value in values.items())
    return f"{_PLAIN}\n{{{fields}}}\n"


FILES: dict[str, list[tuple[str, bool]]] = {
    "json": [
        (_PLAIN, True),
        ("", True),
        (f"\n{_PLAIN}\r\n\n  \n{_PLAIN}", True),
        (_json(k='"b"', extra="[1, {}]"), True),
        (_json(k="null", i="null", ts="null"), True),
        (_json(k=r'"\u00e9\ud83d\ude00 \"q\" \\"'), True),
        (_json(ts='"2024-01-02 03:04:05.123456Z"'), True),
        (_json(n="9223372036854775807", i="-2147483648"), True),
        (_json(x="1e300", b="false"), True),
        (_json(x="1"), True),
        (_json(k="7"), False),
        (_json(k='{"z": 1}'), False),
        (_json(i="1.0"), False),
        (_json(i='"1"'), False),
        (_json(n="9223372036854775808"), False),
        (_json(i="2147483648"), False),
        (_json(x='"NaN"'), False),
        (_json(b='"true"'), False),
        (_json(d='"2024-1-2"'), False),
        (_json(ts='"2024-01-02T03:04:05"'), False),
        (_json(ts='"2024-01-02T03:04:05+01:00"'), False),
        (_json(ts='"2024-01-02"'), False),
        (_json(ts="1704164645"), False),
        (_json(ts='"2024-02-30T00:00:00Z"'), False),
        (f"{_PLAIN}{_PLAIN}\n", False),
        (f"{_PLAIN} {_PLAIN}\n", False),
        (f"[{_PLAIN},{_PLAIN}]\n", False),
        (_PLAIN.replace(",", ",\n", 1), False),
        ("{'k': 'a'}\n", False),
        (f"{_PLAIN}\n{{broken\n", False),
        (f"{_PLAIN}\nnull\n", False),
        (f"\ufeff{_PLAIN}\n", False),
        ('{"k":"a","k":"b"}\n', False),
        ("{}\n", True),
    ],
    "csv": [
        ("a,1,2,0.5,true,2024-01-02,2024-01-02T03:04:05Z\n", True),
        ("", True),
        ("\na,1,2,0.5,true,2024-01-02,2024-01-02T03:04:05Z\r\n\n \t\n", True),
        (",,,,,,\n", True),
        ("NA,-1,007,1e3,false,,2024-01-02 03:04:05.1Z", True),
        (" a ,1,2,1,true,,\n", True),
        ("null,1,2,1,true,,\n", True),
        ("é,1,2,1,true,,\n", True),
        ("a, 1,2,1,true,,\n", False),
        ("a,+1,2,1,true,,\n", False),
        ("a,1.0,2,1,true,,\n", False),
        ("a,2147483648,2,1,true,,\n", False),
        ("a,1,2,NaN,true,,\n", False),
        ("a,1,2,1,True,,\n", False),
        ("a,1,2,1,1,,\n", False),
        ("a,1,2,1,true,2024-1-2,\n", False),
        ("a,1,2,1,true,,2024-01-02T03:04:05\n", False),
        ("a,1,2,1\n", False),
        ("a,1,2,1,true,,,more\n", False),
        ('"a",1,2,1,true,,\n', False),
        ("a\\,1,2,1,true,,\n", False),
        ("\x01\n", False),
    ],
    "text": [
        ("", True),
        ("a", True),
        ("a\n", True),
        ("a\n\n b \r\nc\rd\r\n", True),
        ("\n", True),
        ("é\u2028x\n", True),
        ("\ufeffa\n", False),
    ],
}
"""Contents, and whether a reader without Spark must read them. It may refuse the others, and never differ."""
