"""Patterns that have too many states."""

from __future__ import annotations

import resource
import time

import pytest

from streamops.kernel.errors import SpecError
from streamops.patterns.core.automaton import compile_pattern
from streamops.patterns.core.syntax import parse_pattern

NAMES = [f"v{number}" for number in range(62)]
BITS = {name: 1 << at for at, name in enumerate(NAMES)}


def compile_text(text: str) -> int:
    """The number of states."""
    pattern = parse_pattern(text)
    return len(compile_pattern(pattern, BITS).transitions)


@pytest.mark.parametrize(
    "text",
    [
        "v0{64}",
        "v0{1000000000}",
        "v0{,1000000000}",
        "(v0 v1?){1000000000,}",
        "((v0{1000}){1000}){1000}",
        f"permute({', '.join(NAMES)})",
        f"permute({', '.join(f'({name} v0)' for name in NAMES[:11])})",
        "permute(permute(v0 v1, v2 v3, v4 v5), permute(v0 v2, v1 v3, v4), (v0 v1){9}, v2+, v3 v4)",
    ],
)
def test_too_many_states_are_refused_before_they_are_built(text: str) -> None:
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    before = time.process_time()
    with pytest.raises(SpecError, match="PARAMETER_OUT_OF_RANGE"):
        compile_text(text)
    assert time.process_time() - before < 2
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 100_000, "kilobytes"


def test_alternatives_of_all_variables_in_as_many_rows_as_there_are_states() -> None:
    assert compile_text(f"({' | '.join(NAMES)}){{62}}") == 63
