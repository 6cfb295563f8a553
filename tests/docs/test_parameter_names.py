"""Every parameter and choice that a page or a docstring names exists."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamops.kernel.core import Metrics
from streamops.spark.operator import Operator
from website.names import Name, public_names

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES.remove(ROOT / "docs" / "errors.md")
FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)

# Of others: settings of MySQL, Azure and libpq, of an author's own operator, and what examples print.
OF_OTHERS = {"binlog_row_image", "AZURE_SERVICE", "sslmode", "passfile", "conf", "page"}
OF_OTHERS |= {"oracle", "deadline", "KillMode", "TimeoutStopSec", "day"}
# Rows of tables of parameters that are columns or metrics.
IN_TABLES = {"steps", "overflowed", "observedMetrics"}
COUNTS = {"revision", *Metrics.__dataclass_fields__, "state_rows", "state_bytes"}
# Words in code style of docstrings that are columns, counts, and letters of formulas.
OTHER_NAMES = {
    "windows.compare": {"anomaly_v", "v"},
    "sketches.seen": {"seen_full", "full"},
    "search.match": {"changes"},
    "changes.fold": {"late", "reason"},
    "changes.from_debezium": {"c", "r", "m", "t", "u", "d"},
    "changes.normalize": {"stale", "deletes", "ignored", "duplicates"},
    "time.correct_clock": {"corrected_time", "p"},
    "time.track_clock": {"corrected_time", "p"},
    "time.guard": {"lower"},
    "sources.outbox": {"payload", "id", "_lsn"},
    "observe.lateness_needed": {"needed"},
}


def signatures() -> dict[str, inspect.Signature]:
    """The parameters of every public function and class."""
    found = {"options": inspect.signature(Operator.options)}
    for name in public_names():
        if callable(name.value):
            found[name.title] = inspect.signature(name.value)
            if inspect.isclass(name.value):
                for method, value in inspect.getmembers(name.value, inspect.isroutine):
                    if not method.startswith("_"):
                        found[f"{name.title}.{method}"] = inspect.signature(value)
    return found


SIGNATURES = signatures()
PARAMETERS = {parameter for signature in SIGNATURES.values() for parameter in signature.parameters}
NAMES = {name.name for name in public_names()}


def keywords(text: str, start: int) -> set[str]:
    """The names of the arguments of the call whose brackets open before ``start``."""
    depth, end = 1, start
    while depth and end < len(text):
        depth += (text[end] in "([{") - (text[end] in ")]}")
        end += 1
    inside, shorter = "", re.sub(r'"[^"\n]*"', "", text[start : end - 1])
    while inside != shorter:
        inside, shorter = shorter, re.sub(r"[(\[{][^()\[\]{}]*[)\]}]", "", shorter)
    return set(re.findall(r"\b(\w+)=(?!=)", inside))


def unknown(text: str) -> Iterator[str]:
    """What a text in Markdown names, and no public function has."""
    for call in re.finditer(r"\b(\w+\.\w+)\(", text):
        signature = SIGNATURES.get(call[1].replace("agg.", "aggregates."))
        if signature is None:
            continue
        if not any(str(p).startswith("**") for p in signature.parameters.values()):
            for name in keywords(text, call.end()) - set(signature.parameters):
                yield f"{call[1]}({name}=)"
    prose = FENCE.sub("", text)
    named = re.findall(r"`(\w+)=[^`\n]*`", prose)
    named += re.findall(r"\bparameters? `(\w+)`", prose) + re.findall(r"`(\w+)` parameter", prose)
    yield from {*named} - PARAMETERS - OF_OTHERS
    for table in re.finditer(r"(?:^\|.*\n)+", prose, re.MULTILINE):
        header, _, *rows = table[0].splitlines()
        cells = [row.split("|")[1] for row in rows]
        first = [
            w for c in cells if re.fullmatch(r"[\s,`\w]*", c) for w in re.findall(r"`(\w+)`", c)
        ]
        title = header.split("|")[1].strip()
        # A table of parameters, or one without a title of which most rows are parameters.
        if title == "parameter" or (not title and 2 * len(PARAMETERS & {*first}) >= len(first)):
            yield from {*first} - PARAMETERS - IN_TABLES


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_a_page_names_parameters_that_exist(page: Path) -> None:
    assert list(unknown(page.read_text())) == []


def test_a_parameter_that_was_removed_is_noticed_where_it_is_named() -> None:
    stale = (
        'x `windows.hopping("1 day", empty="skip")`',
        "```python\nwindows.tumbling(\n    agg={'n': agg.count()}, empty=1\n)\n```",
        "with `empty=` it is",
        "The parameter `empty` is",
        "| parameter | meaning |\n|---|---|\n| `empty`, `empty_for` | how |\n",
        "| | kernel |\n|---|---|\n| `stragglers` | all |\n| `empty` | both |\n",
    )
    for text in stale:
        assert any("empty" in found for found in unknown(text)), text
    assert not list(unknown('`windows.tumbling("1 day", agg={"n": "x".join(x=1)}, by=f(y=2))`'))


def choices(annotation: Any) -> Iterator[str]:
    """Every text of the literals in an annotation."""
    if typing.get_origin(annotation) is typing.Literal:
        yield from map(str, typing.get_args(annotation))
    for part in typing.get_args(annotation):
        if not isinstance(part, str | int):
            yield from choices(part)


@pytest.mark.parametrize(
    "name", [name for name in public_names() if name.is_operator], ids=lambda name: name.title
)
def test_a_docstring_names_parameters_and_choices_that_exist(name: Name) -> None:
    text, card = inspect.getdoc(name.value) or "", " ".join(name.docstring.card.values())
    plain = re.sub(r"``[^`]*``|:\w+:`[^`]*`|^(>>>|\.\.\.) .*$", "", text, flags=re.MULTILINE)
    own = set(inspect.signature(name.value).parameters)
    of_card = set(re.findall(r"\w+(?=: (?:int|string|boolean|timestamp))", card)) - own
    allowed = own | PARAMETERS | NAMES | COUNTS | of_card | OTHER_NAMES.get(name.title, set())
    assert set(re.findall(r"`(\w+)`", plain)) - allowed == set()
    # In a card, `with "retract"` is a choice of this function.
    hints = typing.get_type_hints(name.value, include_extras=True)
    known = {choice for hint in hints.values() for choice in choices(hint)}
    assert set(re.findall(r'\bwith "(\w+)"', card)) - known == set()
