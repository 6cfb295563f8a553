"""Read stored states, compare them with the states of their histories, and refuse others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pytest

from streamops.kernel.codec import decode
from streamops.kernel.core import State, StateFormat
from streamops.kernel.errors import StateFormatError
from streamops.kernel.values import comparable
from streamops.testing.laws import to_rows
from tests.golden.states import SHARDS


class Written(Protocol):
    """A history with a stored state."""

    @property
    def file(self) -> Path:
        """File of the stored state."""

    @property
    def spec(self) -> Any:
        """The resolved operator."""

    @property
    def state(self) -> Callable[[], State]:
        """Compute the state of the history."""


@dataclass(frozen=True)
class StoredState:
    """A history with a stored state."""

    file: Path
    spec: Any
    state: Callable[[], State]


@dataclass(frozen=True)
class Format:
    """The format of the state of a core, as an operator reads it."""

    core: Any
    operator: str

    def tables(
        self, history: Written, frame: bytes | None = None, **known: Any
    ) -> Mapping[str, pa.Table]:
        """The tables of the state; ``known`` replaces what the reader expects."""
        expected = {"layout": self.core.STATE, "identity": history.spec.identity, "shards": SHARDS}
        return decode(frame or history.file.read_bytes(), **(expected | known))

    def read(self, history: Written, **known: Any) -> State:
        """The stored state, with the watermark at the end of its history."""
        return State(history.state().watermark, self.tables(history, **known))

    def refused(
        self, history: Written, frame: bytes | None = None, **known: Any
    ) -> StateFormatError:
        """The error of a reader that expects something else."""
        with pytest.raises(StateFormatError) as caught:
            self.tables(history, frame, **known)
        return caught.value

    def equals_its_history(self, history: Written) -> State:
        """Assert that the stored state is valid and equals that of its history."""
        found, now = self.read(history), history.state()
        assert found.tables.keys() == now.tables.keys()
        for name, table in found.tables.items():
            assert len(table) > 0
            assert table.schema == now.tables[name].schema
            assert multiset(to_rows(table)) == multiset(to_rows(now.tables[name]))
        self.core.check(history.spec, found)
        return found

    def refuses_another_version(self, history: Written) -> None:
        """Assert that a reader of the next version refuses the state."""
        known: StateFormat = self.core.STATE
        error = self.refused(history, layout=StateFormat(known.kind, known.version + 1))
        assert error.code == "STATE_VERSION"
        frame = int.from_bytes(history.file.read_bytes()[4:6], "little")
        assert error.got == f"frame {frame}, {known.kind} version {known.version}"


def multiset(rows: list[dict[str, Any]]) -> list[Any]:
    """Rows to compare, with floats of twelve digits, as variances may be rounded differently."""
    short = [
        {name: float(f"{v:.12g}") if isinstance(v, float) else v for name, v in row.items()}
        for row in rows
    ]
    return sorted(map(comparable, short), key=repr)
