"""Find retired words: the code, its messages and its documents use the terms of the field.

Identifiers are split into words and checked strictly. Prose (docstrings, comments, messages,
documents, transcripts) is checked for fewer words, which ordinary technical English does not need.

    python tests/architecture/vocabulary.py                   check the tree; what `make check` runs
    python tests/architecture/vocabulary.py --report          count the findings per file
    python tests/architecture/vocabulary.py streamops/joins   list the findings below these paths
"""

from __future__ import annotations

import ast
import functools
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]

# What is retired, and what to use.
IDENTIFIERS = {
    "annotating": "ShardStep",
    "apart": "split",
    "asked": "requested, queries",
    "bag": "multiset",
    "bags": "multisets",
    "came": "arrived",
    "clashes": "conflicts",
    "contested": "conflicts",
    "deciding": "emit",
    "each": "a noun",
    "empties": "empty windows",
    "givers": "donor changes",
    "gone": "removed, evicted",
    "judged": "classified, compared",
    "kept": "stored, retained",
    "kind": "type, dtype",
    "kinds": "types",
    "meeting": "KeyedBatch",
    "moment": "timestamp",
    "moments": "timestamps",
    "netted": "consolidated",
    "place": "sequence, position",
    "places": "sequences, positions",
    "planes": "byte streams",
    "proof": "smoke query",
    "retold": "diff",
    "said": "arguments, spec",
    "says": "values, columns",
    "sealed": "compacted",
    "shown": "formatted, displayed",
    "stands": "effective, stored",
    "stretch": "segment",
    "stretches": "segments",
    "tallies": "item counts",
    "told": "metrics, emitted",
    "untimed": "without event time",
    "verdicts": "decisions",
    "words": "text, names",
}
_ENGLISH = {"apart", "asked", "each", "empties", "kept", "place", "places", "shown"}
TEST_NAMES = IDENTIFIERS.keys() - _ENGLISH
PROSE = {
    r"\bbags?\b": "multiset",
    r"\b(comes?|came) of\b": "follows from, is caused by",
    r"\bcontested\b": "conflicting",
    r"\bgivers?\b": "donor changes",
    r"\bgo(es)? by\b|\bgoing by\b": "uses, depends on",
    r"\bhand(s|ed)? over\b": "passes",
    r"\bin the plainest\b": "in simple",
    r"\bjudged?\b|\bjudges\b|\bjudging\b": "classify, compare with",
    r"\bknows? (no|of no)\b": "does not have, does not support",
    r"\bmoments\b": "timestamps",
    r"\bnetted\b": "consolidated",
    r"\bput(s|ting)? (right|aside)\b": "corrects, sets apart",
    r"\bre?told\b|\btold\b": "emitted, reported, passed",
    r"\bsaid\b": "given, stated",
    r"\bsays? of\b": "states about",
    r"\bstretch(es)?\b": "segment, interval",
    r"\buntimed\b": "without event time",
}

# Values of parameters, in code and prose alike: the same choice has the same name everywhere.
ANY_PROSE = re.compile("|".join(PROSE), re.IGNORECASE)
CHOICES = {
    "drop_oldest": "evict_oldest",
    "ignore_new": "reject_new",
    "keep_first": "reject_new",
    "keep_last": "evict_oldest",
    "quarantine": "route",
    "quarantined": "routed, invalid",
}

# A file, a word of it that stays, and the reason.
_HEADER = "the name of the field in the documented header (docs/state-formats.md)"
_CODE = "part of the code of an error"
ALLOWED = {
    ("benchmarks/peers/programs/on_flink.py", "RowKind"): "a class of Flink",
    ("benchmarks/peers/programs/on_flink.py", "get_row_kind"): "a method of Flink",
    ("streamops/kernel/codes.py", "STATE_KIND"): _CODE,
    ("streamops/kernel/conditions.py", "STATE_KIND"): _CODE,
    ("streamops/kernel/codes.py", "SKETCH_KIND"): _CODE,
    ("streamops/kernel/codes.py", "TARGET_KIND"): _CODE,
    ("streamops/kernel/codec.py", "kind"): _HEADER,
    ("streamops/kernel/core.py", "kind"): _HEADER,
    ("streamops/observe/question.py", "kind"): _HEADER,
    ("streamops/testing/recorded.py", "kind"): _HEADER,
    ("streamops/sinks/conditions.py", "TARGET_KIND"): _CODE,
    ("streamops/sketches/conditions.py", "SKETCH_KIND"): _CODE,
    ("streamops/sketches/core/sketch.py", "kind"): _HEADER,
    ("streamops/sketches/core/countmin.py", "kind"): _HEADER,
    ("streamops/sketches/core/theta.py", "kind"): _HEADER,
    ("streamops/sketches/stored.py", "kind"): _HEADER,
    ("tests/aggregates/core/test_sums.py", "places"): "a parameter of Hypothesis",
    ("streamops/kernel/calls.py", "kind"): "an attribute of Python's Parameter",
    ("tests/packaging/test_completion.py", "kind"): "an attribute of Python's Parameter",
    ("streamops/kernel/frame.py", "kind"): _HEADER,
    ("streamops/state/operators.py", "kind"): _HEADER,
    ("streamops/process/per_shard.py", "kind"): _HEADER,
    ("streamops/state/ending.py", "kind"): _HEADER,
    ("streamops/state/shards.py", "kind"): _HEADER,
    ("tests/golden/reading.py", "kind"): _HEADER,
    ("tests/golden/test_golden_frequency.py", "kind"): _HEADER,
    ("tests/laws/test_placement_laws.py", "kind"): _HEADER,
}

# Nothing below these is checked.
SKIPPED = {
    "tests/architecture/vocabulary.py": "lists the words",
    "tests/architecture/test_vocabulary.py": "plants them",
    "benchmarks/results": "measured output",
}

TREE = (
    "streamops",
    "examples",
    "tests",
    "benchmarks",
    "docs",
    "decisions",
    "notebooks",
    "scripts",
    "website",
)
TREE_FILES = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "Makefile",
    "pyproject.toml",
    "mkdocs.yml",
)
SUFFIXES = {".py", ".md", ".txt", ".toml", ".yaml", ".yml", ".out", ".sql", ""}

Finding = tuple[str, int, str]


def findings(path: Path, root: Path = ROOT) -> Iterator[Finding]:
    """Yield the retired words of a file: its path, the line, and what to use."""
    where = path.relative_to(root).as_posix()
    if any(where == name or where.startswith(f"{name}/") for name in SKIPPED):
        return
    text = path.read_text()
    found = in_python(text) if path.suffix == ".py" else in_prose(text, 1)
    for line, word, use in sorted(set(found)):
        if (where, word) not in ALLOWED:
            yield where, line, f"{word!r}: {use}"


def in_python(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield the retired words of a module: line, word, replacement."""
    text = text.replace('kind="stable"', 'sort="stable"')  # NumPy's parameter
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        line = token.start[0]
        if token.type == tokenize.NAME:
            yield from in_name(token.string, line)
        elif token.type == tokenize.COMMENT or (
            token.type == tokenize.STRING and re.search(r"\s", token.string)
        ):
            yield from in_prose(token.string, line)
        elif token.type == tokenize.STRING and (choice := token.string.strip("\"'")) in CHOICES:
            yield line, choice, CHOICES[choice]
    for node in ast.walk(ast.parse(text)):  # names in f-strings are not tokens of their own
        if isinstance(node, ast.JoinedStr):
            for part in ast.walk(node):
                if isinstance(part, ast.Name):
                    yield from in_name(part.id, part.lineno)


def in_name(name: str, line: int) -> Iterator[tuple[int, str, str]]:
    """Yield the retired words of an identifier."""
    retired = TEST_NAMES if name.startswith("test_") else IDENTIFIERS.keys()
    for word in words_of(name):
        if word in retired:
            yield line, name, IDENTIFIERS[word]


@functools.cache
def words_of(name: str) -> list[str]:
    """Return the words of an identifier in lower case."""
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)]


def in_prose(text: str, first: int) -> Iterator[tuple[int, str, str]]:
    """Yield the retired words and phrases of a text that begins in line `first`."""
    for number, line in enumerate(text.splitlines(), first):
        for word in CHOICES.keys() & {*re.findall(r"\w+", line)}:
            yield number, word, CHOICES[word]
        if not ANY_PROSE.search(line):
            continue
        for pattern, use in PROSE.items():
            for match in re.finditer(pattern, line, re.IGNORECASE):
                yield number, match.group(), use


def files(paths: Iterable[Path]) -> list[Path]:
    """Return the text files at and below these paths."""
    found: set[Path] = set()
    for path in paths:
        found.update(path.rglob("*") if path.is_dir() else [path])
    return sorted(p for p in found if p.is_file() and p.suffix in SUFFIXES and is_text(p))


def is_text(path: Path) -> bool:
    """Whether a file is source text, and no product of a tool."""
    return not any(part.startswith((".", "__pycache__")) for part in path.parts[1:])


def main(arguments: list[str]) -> int:
    """List the findings in the tree or below paths, or count them per file."""
    whole = [ROOT / name for name in (*TREE, *TREE_FILES)]
    if arguments == ["--report"]:
        counts = Counter(where for path in files(whole) for where, *_ in findings(path))
        print(*(f"{count:6} {where}" for where, count in sorted(counts.items())), sep="\n")
        print(f"{counts.total():6} in {len(counts)} files")
        return 0
    chosen = [Path(name).resolve() for name in arguments] or whole
    found = [finding for path in files(chosen) for finding in findings(path)]
    print(*(f"{where}:{line}: {reason}" for where, line, reason in found), sep="\n")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
