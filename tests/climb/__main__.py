"""Let every operator continue its checkpoint on one version of Spark after another.

``python -m tests.climb BUILD VERSION...``: ``BUILD/spark-VERSION`` has an environment of each version, from the oldest to the
newest. Writes ``BUILD/climb/report.md``; fails if a row differs, or a query fails.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.climb.cases import SINGLE, STORES, cases, queries
from tests.spark.test_every_operator import replay_together

GROUPS, TRANSFORM = STORES
_TRIED = 2
"""The micro-batches before a query goes to an older version, or to another state store."""


@dataclass
class Query:
    """A query on its way through the versions."""

    api: str
    names: list[str]
    folder: Path
    runs: list[range] = field(default_factory=list)
    """The micro-batches that each version ran."""
    emitted: list[dict[str, list[list[str]]]] = field(default_factory=list)
    versions: list[str] = field(default_factory=list)
    failure: str | None = None
    refused: dict[str, str] = field(default_factory=dict)

    def take(self, version: str, stop: int, result: dict[str, Any]) -> None:
        """Add what a version did. Operators that it refuses have no part in the query."""
        self.refused |= result["refused"]
        self.names = [name for name in self.names if name not in result["refused"]]
        self.failure = result["failure"] and f"Spark {version}: {result['failure']}"
        if self.names and not self.failure:
            self.runs.append(range(self.runs[-1].stop if self.runs else 0, stop))
            self.emitted.append(result["emitted"])
            self.versions.append(version)


@dataclass
class Climb:
    """All versions, and where they are."""

    build: Path
    versions: list[str]
    folder: Path
    count: int
    """The micro-batches."""

    def step(self, version: str, todo: list[tuple[Query, int]]) -> None:
        """Let one version continue these queries, each up to a micro-batch."""
        start = time.monotonic()
        todo = [(query, stop) for query, stop in todo if query.names and not query.failure]
        requested = [
            {"api": query.api, "names": query.names, "folder": str(query.folder), "stop": stop}
            for query, stop in todo
        ]
        request = self.folder / f"{version}-{time.monotonic_ns()}.json"
        wanted = {"version": version, "count": self.count, "queries": requested}
        request.write_text(json.dumps(wanted))
        python = self.build / f"spark-{version}" / "bin" / "python"
        environment = os.environ | {"PYTHONPATH": str(Path.cwd()), "PYSPARK_PYTHON": str(python)}
        print(f"Spark {version}: {len(todo)} queries", flush=True)
        with request.with_suffix(".log").open("w") as log:  # the stacks of Spark
            command = [python, "-m", "tests.climb.step", request]
            subprocess.run(command, check=True, env=environment, stderr=log)
        results = json.loads(request.with_suffix(".results.json").read_text())
        by_folder = {result["folder"]: result for result in results}
        for query, stop in todo:
            query.take(version, stop, by_folder[str(query.folder)])
        print(f"Spark {version}: {time.monotonic() - start:.0f} s", flush=True)


def main(build: Path, versions: list[str]) -> int:
    """Climb, and write the report."""
    count = max(len(versions), _TRIED + 1)
    known = cases(count)
    folder = build / "climb" / "queries"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    climb = Climb(build, versions, folder, count)
    ladders = [
        Query(api, names, folder / f"{api}-{part}")
        for api, of in queries([*known]).items()
        for part, names in enumerate(of)
    ]
    down = {
        number: [
            Query(api, [SINGLE], folder / f"down-from-{versions[number]}-{api}")
            for api in STORES
            if number > 1 or api == GROUPS
        ]
        for number in range(1, len(versions))
    }
    changed = Query(GROUPS, [SINGLE], folder / "to-RocksDB-with-the-second-version")
    for number, version in enumerate(versions):
        todo = [(of, number + 1) for of in ladders if number or of.api == GROUPS]
        todo += [(of, _TRIED) for of in down.get(number, [])]
        if number == 0:
            todo.append((changed, _TRIED))
        climb.step(version, todo)
    changed.api = TRANSFORM
    for number in down:
        todo = [(of, _TRIED + 1) for of in down[number]]
        if number == 2:  # on the second version, as an upgrade
            todo.append((changed, _TRIED + 1))
        climb.step(versions[number - 1], todo)
    lines, wrong = report(known, versions, ladders)
    others = [*(query for of in down.values() for query in of), changed]
    lines += ["", *outcomes(known, others)]
    target = build / "climb" / "report.md"
    target.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    return 1 if wrong else 0


def differences(known: dict[str, Any], query: Query) -> dict[str, list[int]]:
    """By operator: in each version, the number of rows that the stream or the replay has alone."""
    chosen = {name: known[name] for name in query.names}
    expected = replay_together(chosen, query.runs) if query.runs else {}
    found = {}
    for name in chosen:
        rest, counts = list(expected.get(name, [])), []
        for of in query.emitted:
            mine, rest = rest[: len(of[name])], rest[len(of[name]) :]
            pairs = zip(map(Counter, of[name]), map(Counter, mine), strict=False)
            counts.append(sum((a - b).total() + (b - a).total() for a, b in pairs))
            counts[-1] += sum(map(len, of[name][len(mine) :]))
        if counts:
            counts[-1] += sum(map(len, rest))
        found[name] = counts
    return found


def report(
    known: dict[str, Any], versions: list[str], ladders: list[Query]
) -> tuple[list[str], int]:
    """A table for each state API, and the number of rows that differ and of queries that failed."""
    lines, wrong = list[str](), 0
    for api in STORES:
        lines += ["", f"With `{api}`:", "", f"| operator | {' | '.join(versions)} | differences |"]
        lines += ["|---" * (len(versions) + 2) + "|"]
        total, differing = Counter[str](), 0
        for query in (of for of in ladders if of.api == api):
            by_name = differences(known, query)
            wrong += bool(query.failure)
            for name, code in query.refused.items():
                lines.append(f"| {name} | `{code}` |{' |' * len(versions)}")
            for name, counts in by_name.items():
                rows = {
                    version: sum(map(len, of[name]))
                    for version, of in zip(query.versions, query.emitted, strict=True)
                }
                cells = " | ".join(str(rows.get(version, "")) for version in versions)
                lines.append(f"| {name} | {cells} | {query.failure or sum(counts)} |")
                total.update(rows)
                differing += sum(counts)
        cells = " | ".join(str(total[version]) for version in versions)
        lines.append(f"| all, {total.total()} rows | {cells} | {differing} |")
        wrong += differing
    return lines, wrong


def outcomes(known: dict[str, Any], others: list[Query]) -> list[str]:
    """What became of checkpoints on an older version, or with another state store."""
    lines = []
    for query in others:
        result = query.failure or "; ".join(query.refused.values())
        if not result:
            rows = sum(len(batch) for batch in query.emitted[-1][SINGLE])
            result = f"{rows} rows, {sum(differences(known, query)[SINGLE])} differences"
        lines.append(f"- {query.folder.name}: {' '.join(result.split())[:1_500]}")
    return lines


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
