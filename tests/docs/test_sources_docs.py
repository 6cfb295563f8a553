"""The documentation of sources matches the code."""

from __future__ import annotations

import re
from typing import get_args

from streamops import sources
from streamops.sources.core import outbox as outbox_core
from streamops.sources.kafka_events import POSITION, REASONS, Format, Tombstones
from streamops.sources.kafka_replay import Edge, Isolation, Since
from streamops.sources.outbox import Create
from tests.docs.test_readme import ROOT, documented, public, terms
from tests.kafka.broker import VERSION

PAGE = ROOT / "docs" / "sources.md"


def test_names_of_sources_are_documented_and_functions_are_in_the_table() -> None:
    choices = (Format, Tombstones, Isolation, Edge, Since, Create)
    values = {word for choice in choices for word in get_args(choice)}
    events = {outbox_core.LSN, outbox_core.POSITION, outbox_core.COMMITTED_AT, *outbox_core.COLUMNS}
    values |= {*events, *outbox_core.REASONS}
    assert {*values, *REASONS, *POSITION.values()} - documented() == set()
    assert set(sources.__all__) <= {
        name.rpartition(".")[2] for name in terms(ROOT / "docs" / "which-operator.md")
    }
    assert public(sources) - terms(PAGE) - terms(ROOT / "docs" / "reference.md") == set()


def test_the_versions_in_the_documentation_are_those_that_are_tested() -> None:
    text = PAGE.read_text()
    for part in ("broker", "connector"):
        pom = (ROOT / "scripts" / "kafka" / f"{part}.xml").read_text()
        pairs = re.findall(r"<artifactId>([^<]+)</artifactId>\s*<version>([^<]+)</version>", pom)
        for artifact, version in pairs[1:]:
            name = artifact.removesuffix("_2.13")
            if not name.startswith("slf4j"):
                rows = [row for row in text.splitlines() if row.startswith("|") and version in row]
                assert any(re.search(rf"(?i)\b{name}\b", row) for row in rows), artifact
    script = (ROOT / "scripts" / "get-kafka").read_text()
    assert f"version={VERSION} " in script
