"""Records of a thousand random versions of a schema are read exactly, or rejected with the reason."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip(
    "confluent_kafka.schema_registry.avro", reason="the extra registry is not installed"
)

from streamops.sources.registry import Decoding, Settings
from tests.servers.registry import Registry, running
from tests.sources.evolutions import DEFAULTS, ROW, Evolution, Evolver


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    with running("reader", "secret") as found:
        yield found


def decoding(registry: Registry) -> Decoding:
    login = {"url": registry.url, "basic.auth.user.info": "reader:secret"}
    return Decoding(Settings.parse(login), ROW, tuple(DEFAULTS.items()), keeps_unknown=True)


def rows(found: pa.StructArray) -> list[dict[str, Any] | str]:
    """Each row by the names of its columns, or the reason."""
    return [
        row["reason"] or {name: plain(row[f"c{n}"]) for n, name in enumerate(ROW.names)}
        for row in found.to_pylist()
    ]


def plain(value: Any) -> Any:
    is_map = isinstance(value, list) and value and isinstance(value[0], tuple)
    return dict(value) if is_map else value


@pytest.mark.laws
@pytest.mark.parametrize("format", ["AVRO", "PROTOBUF"])
def test_records_of_a_thousand_versions_are_what_was_sent(registry: Registry, format: str) -> None:
    with registry.client() as client:
        evolver = Evolver(client, random.Random(7))
        versions = [evolver.evolve(format, is_compatible=n % 5 > 0) for n in range(1_000)]
    check(registry, versions)


def check(registry: Registry, versions: list[Evolution]) -> None:
    pairs = [
        pair
        for version in versions
        for pair in zip(version.messages, version.expected, version.unknown, strict=True)
    ]
    random.Random(1).shuffle(pairs)
    messages, expected, unknown = zip(*pairs, strict=True)
    found = decoding(registry).decode(pa.array(messages, pa.binary()))
    for n, (row, wanted) in enumerate(zip(rows(found), expected, strict=True)):
        if isinstance(wanted, dict) and isinstance(row, dict) and wanted["attrs"] == {}:
            wanted = wanted | {"attrs": []}
        assert row == wanted, (n, messages[n])
    texts = found.field("unknown").to_pylist()
    for text, wanted, row in zip(texts, unknown, expected, strict=True):
        if not isinstance(row, str):
            assert (None if text is None else json.loads(text)) == wanted
