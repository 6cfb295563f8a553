"""Plant faults, one at a time, and report which test detects each of them.

    python -m tests.faults.inject                            all faults, against `make test`
    python -m tests.faults.inject --only grid-deadline-lost  one fault
    python -m tests.faults.inject --suite test-all --report faults.md --jobs 2

A copy of the tracked files gets one fault of faults.yaml. Its tests run in stages, the likely ones
first, until one fails. A test detects the fault if it fails with it and passes without it. A copy
whose tests cannot be collected is a mistake in faults.yaml: that detects nothing.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
FAULTS = Path(__file__).with_name("faults.yaml")

REQUIRED = {"test": 80, "test-all": 85}
"""How many faults of the list each suite must detect."""

HANGS = 3_600  # seconds of one stage

# As `make test` and `make test-all` select their tests.
_MAKEFILE = (ROOT / "Makefile").read_text().splitlines()
JVM = next(line for line in _MAKEFILE if line.startswith("JVM ")).partition(":= ")[2]
NO_JVM = f"not ({JVM} or soak)"
QUICK = f"{NO_JVM} and not exhaustive"

_FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)
_PASSED, _TEST_FAILED, _NOTHING_SELECTED = 0, 1, 5  # exit codes of pytest


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault: see faults.yaml."""

    id: str
    area: str
    fault: str
    folder: str
    original: str
    replacement: str
    tests: tuple[str, ...]
    survives: str = ""

    def find(self, root: Path) -> Path:
        """The file with the original text, which occurs once."""
        files = sorted((root / self.folder).rglob("*.py"))
        counts = {path: path.read_text().count(self.original) for path in files}
        if sum(counts.values()) != 1:
            found = ", ".join(f"{p.relative_to(root)}: {n}" for p, n in counts.items() if n)
            raise LookupError(
                f"{self.id}: the original text must occur once ({found or 'nowhere'})"
            )
        return max(counts, key=lambda path: counts[path])

    def plant(self, root: Path) -> None:
        """Replace the original text."""
        path = self.find(root)
        before, after = path.read_text().split(self.original)
        line = before.rpartition("\n")[2]
        indent = line[: len(line) - len(line.lstrip())]
        lines = f"\n{indent}".join(self.replacement.split("\n"))
        path.write_text(before + lines + after)


def read_faults(path: Path = FAULTS) -> list[Fault]:
    """The faults of the list."""
    entries = yaml.safe_load(path.read_text())
    return [Fault(**{**entry, "tests": tuple(entry["tests"])}) for entry in entries]


@dataclass(frozen=True, slots=True)
class Stage:
    """Tests that run together; without paths all that the marker selects."""

    name: str
    suite: str
    profile: str
    marker: str
    paths: tuple[str, ...] = ()

    @property
    def needs_jvm(self) -> bool:
        return self.marker not in {NO_JVM, QUICK}


def stages(fault: Fault, suite: str) -> Iterator[Stage]:
    """The stages of a suite, those of `make test` first."""
    family = Path(fault.folder).parts[1]
    near = (f"tests/{family}", fault.folder, "tests/transcripts")
    smoke = f"smoke and ({JVM})"
    yield Stage("likely", "test", "quick", QUICK, fault.tests)
    yield Stage("likely on Spark", "test", "quick", smoke, fault.tests)
    yield Stage("family", "test", "quick", QUICK, near)
    yield Stage("without Spark", "test", "quick", QUICK)
    yield Stage("smoke on Spark", "test", "quick", smoke)
    if suite == "test-all":
        yield Stage("all likely on Spark", suite, "test", JVM, fault.tests)
        yield Stage("more examples, likely", suite, "test", NO_JVM, fault.tests)
        yield Stage("more examples", suite, "test", NO_JVM)
        yield Stage("all on Spark", suite, "test", JVM)


@dataclass(slots=True)
class Result:
    """What became of a fault: the test that detected it, or none."""

    fault: Fault
    test: str = ""
    stage: Stage | None = None
    seconds: float = 0.0
    trouble: str = ""

    def detected_by(self, suite: str) -> bool:
        return self.stage is not None and suite in (self.stage.suite, "test-all")

    def row(self) -> str:
        where = self.stage.name if self.stage else ""
        test = f"`{self.test}`" if self.test else self.trouble or "no test"
        return f"| {self.fault.id} | {self.fault.fault} | {test} | {where} | {self.seconds:.0f} |"


@dataclass(slots=True)
class Campaign:
    """Run the faults against copies of one unmodified copy."""

    base: Path
    suite: str
    last_stage: str = ""
    before_spark: Sequence[str] = ()
    always_failing: set[str] = field(default_factory=set)  # tests that fail without a fault, too

    def try_fault(self, fault: Fault) -> Result:
        """Plant a fault, and run the stages until a test detects it."""
        result, start = Result(fault), time.monotonic()
        tree = self.base.with_name(fault.id)
        shutil.copytree(self.base, tree)
        try:
            fault.plant(tree)
            tried: dict[str, list[str]] = {}  # paths by marker
            for stage in stages(fault, self.suite):
                done = tried.setdefault(f"{stage.profile} {stage.marker}", [])
                result.test, result.trouble = self.first_failure(tree, stage, done)
                done += stage.paths
                if result.test:
                    result.stage = stage
                if result.test or result.trouble or stage.name == self.last_stage:
                    break
        finally:
            shutil.rmtree(tree)
        result.seconds = time.monotonic() - start
        return result

    def first_failure(self, tree: Path, stage: Stage, tried: list[str]) -> tuple[str, str]:
        """The first test that fails with the fault alone; else what went wrong, if anything."""
        while True:
            known = [f"--deselect={test}" for test in sorted(self.always_failing)]
            ignored = [f"--ignore={path}" for path in tried if path not in stage.paths]
            code, output = self.pytest(tree, stage, *stage.paths, *ignored, *known)
            if code in (_PASSED, _NOTHING_SELECTED):
                return "", ""
            failed = _FAILED.search(output)
            if code != _TEST_FAILED or failed is None:
                return "", f"pytest exited with {code}: {output.strip()[-200:]!r}"
            test = failed[1]
            if self.pytest(self.base, stage, test)[0] == _PASSED:
                return test, ""
            self.always_failing.add(test)

    def pytest(self, tree: Path, stage: Stage, *arguments: str) -> tuple[int, str]:
        """Run tests of a stage in a copy until one fails."""
        options = ["-q", "-x", "-rfE", "--tb=no", "-p", "no:cacheprovider", "-m", stage.marker]
        command = [sys.executable, "-m", "pytest", *options, *arguments]
        if stage.needs_jvm:
            command = [*self.before_spark, *command]
        try:
            done = run(command, tree, HYPOTHESIS_PROFILE=stage.profile)
        except subprocess.TimeoutExpired:
            return -1, f"no end after {HANGS} seconds"
        return done.returncode, done.stdout + done.stderr


def run(command: Sequence[str], tree: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command that imports streamops from a copy of the tree."""
    environment = os.environ | {"PYTHONPATH": str(tree), "HYPOTHESIS_SHRINK": "no"} | variables
    return subprocess.run(
        command,
        cwd=tree,
        env=environment,
        text=True,
        capture_output=True,
        timeout=HANGS,
        check=False,
    )


def copy_tree(target: Path) -> None:
    """Copy the tracked files as they are in the working tree."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    for name in listed.stdout.decode().split("\0"):
        if name and (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    # Bytecode that is compared by the hash of its source: times of files are too coarse for this.
    run([sys.executable, "-m", "compileall", "-q", "--invalidation-mode=checked-hash", "."], target)
    canary = "import streamops; print(streamops.__file__)"
    found = run([sys.executable, "-c", canary], target).stdout.strip()
    print(f"tests import {found}")
    if Path(found) != target / "streamops" / "__init__.py":
        raise SystemExit(f"the tests would not import the copy in {target}")


def summarize(results: list[Result], suite: str, always_failing: set[str]) -> tuple[str, bool]:
    """The table, the numbers, the survivors; and whether enough faults were detected."""
    lines = ["| id | fault | detected by | stage | seconds |", "|---|---|---|---|---|"]
    lines += [result.row() for result in results]
    enough = not always_failing
    for name in ("test", "test-all")[: 1 + (suite == "test-all")]:
        found = sum(result.detected_by(name) for result in results)
        lines += ["", f"Detected by `make {name}`: {found} of {len(results)}"]
        enough &= found >= min(REQUIRED[name], len(results))
    for result in results:
        if not result.detected_by("test"):
            why = result.fault.survives or result.trouble or "a hole in the tests"
            lines += ["", f"`make test` does not detect {result.fault.id}: {why}"]
    lines += [f"\nFails without a fault, too: {test}" for test in sorted(always_failing)]
    return "\n".join(lines), enough


def main() -> int:
    """Run the faults, and print the report."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.inject")
    parser.add_argument("--only", nargs="+", metavar="ID", help="faults to plant; default: all")
    parser.add_argument("--suite", choices=REQUIRED, default="test", help="the make target")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the report there, too")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="faults at the same time")
    parser.add_argument("--up-to", default="", metavar="STAGE", help="such as 'without Spark'")
    parser.add_argument(
        "--before-spark", type=shlex.split, default=[], metavar="COMMAND", help="such as flock FILE"
    )
    options = parser.parse_args()
    faults = {fault.id: fault for fault in read_faults()}
    chosen = [faults[name] for name in options.only or faults]
    for fault in chosen:
        fault.find(ROOT)
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        base = Path(folder).resolve() / "unmodified"
        copy_tree(base)
        campaign = Campaign(base, options.suite, options.up_to, options.before_spark)
        results = []
        with ThreadPoolExecutor(options.jobs) as pool:
            for result in pool.map(campaign.try_fault, chosen):
                results.append(result)
                print(result.row(), flush=True)
    report, enough = summarize(results, options.suite, campaign.always_failing)
    print(f"\n{report}")
    if options.report is not None:
        options.report.write_text(f"{report}\n")
    return 0 if enough else 1


if __name__ == "__main__":
    sys.exit(main())
