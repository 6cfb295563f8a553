"""Record what Debezium's connectors write, for tests without servers: tests/changes/recorded.

    python -m tests.debezium.record

A file has a line about the connector, with the rows of the table in the database, and a line per message.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.debezium.columns import MODES, TYPES
from tests.debezium.mirror import Message, texts_of
from tests.debezium.scenarios import SCENARIOS, play, rows_of
from tests.debezium.scripts import write_values
from tests.debezium.systems import running
from tests.debezium.worker import VERSION
from tests.kafka.broker import Broker

FOLDER = Path(__file__).parents[1] / "changes" / "recorded"


@dataclass(frozen=True)
class Recording:
    """Messages of a topic, as text, and what is known of their table."""

    about: dict[str, Any]
    messages: list[Message]

    def write(self, name: str) -> None:
        """Write it into a file."""
        lines = [json.dumps(self.about), *map(json.dumps, self.messages)]
        # Without a time, so that equal messages are equal files.
        content = gzip.compress("\n".join(lines).encode(), mtime=0)
        FOLDER.mkdir(exist_ok=True)
        (FOLDER / f"{name}.jsonl.gz").write_bytes(content)


def recorded(pattern: str) -> Iterator[tuple[str, Recording]]:
    """The recordings whose names match, in order."""
    for path in sorted(FOLDER.glob(f"{pattern}.jsonl.gz")):
        about, *messages = map(json.loads, gzip.decompress(path.read_bytes()).decode().splitlines())
        yield path.name.partition(".")[0], Recording(about, [(k, v) for k, v in messages])


def messages_of(broker: Broker, topic: str) -> list[Message]:
    """The keys and values of a topic as text."""
    return [(_text(record.key()), _text(record.value())) for record in broker.read(topic)]


def _text(part: bytes | None) -> str | None:
    return None if part is None else part.decode()


def main() -> None:
    """Record all of it."""
    with running() as systems:
        for connector, database in systems.databases.items():
            write_values(systems, connector)
            for name in MODES:
                topic = database.topic(f"{connector}-{name}", "types")
                about = {
                    "connector": connector,
                    "debezium": VERSION,
                    "mode": name,
                    "table": texts_of(database, "types", TYPES[connector]),
                }
                recording = Recording(about, messages_of(systems.broker, topic))
                recording.write(f"types-{connector}-{name}")
                print(connector, name, len(recording.messages), "messages", flush=True)
    with running() as systems:
        for connector, database in systems.databases.items():
            play(systems, connector)
            for name, scenario in SCENARIOS[connector].items():
                rows: list[Any] = rows_of(database, scenario)
                known = {"connector": connector, "debezium": VERSION, "table": rows}
                topic = database.topic(connector, name)
                recording = Recording(known, messages_of(systems.broker, topic))
                recording.write(f"changes-{connector}-{name}")
                print(connector, name, len(recording.messages), "messages", flush=True)


if __name__ == "__main__":
    main()
