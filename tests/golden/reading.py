"""How state that was written once is read, refused, and compared with what its history leaves now."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pytest

from streamops.kernel.codec import decode
from streamops.kernel.contract import State, StateFormat
from streamops.kernel.errors import StateFormatError
from streamops.testing.laws import rows_of
from streamops.testing.values import comparable
from tests.golden.states import SHARDS


class Written(Protocol):
    """A history whose state is kept."""

    @property
    def file(self) -> Path:
        """Where its bytes are."""

    @property
    def spec(self) -> Any:
        """The operator."""

    @property
    def state(self) -> Callable[[], State]:
        """What it leaves today."""


@dataclass(frozen=True)
class Kept:
    """A history that is alone of its kind."""

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
        """The tables of the state; ``known`` is what the reader knows otherwise."""
        said = {"layout": self.core.STATE, "identity": history.spec.identity, "shards": SHARDS}
        return decode(frame or history.file.read_bytes(), **(said | known), where=self.operator)

    def read(self, history: Written, **known: Any) -> State:
        """The state, at the watermark that its history ended with."""
        return State(history.state().watermark, self.tables(history, **known))

    def refused(
        self, history: Written, frame: bytes | None = None, **known: Any
    ) -> StateFormatError:
        """What a reader who knows otherwise is told."""
        with pytest.raises(StateFormatError) as caught:
            self.tables(history, frame, **known)
        return caught.value

    def is_what_is_left(self, history: Written) -> State:
        """The state, which is the one that its history leaves today, and sound."""
        found, now = self.read(history), history.state()
        assert found.tables.keys() == now.tables.keys()
        for name, kept in found.tables.items():
            assert len(kept) > 0
            assert kept.schema == now.tables[name].schema
            assert bag(rows_of(kept)) == bag(rows_of(now.tables[name]))
        self.core.check(history.spec, found)
        return found

    def refuses_another_version(self, history: Written) -> None:
        """A reader of the next version says which one it found."""
        known: StateFormat = self.core.STATE
        error = self.refused(history, layout=StateFormat(known.kind, known.version + 1))
        assert error.code == "STATE_VERSION"
        frame = int.from_bytes(history.file.read_bytes()[4:6], "little")
        assert error.got == f"frame {frame}, {known.kind} version {known.version}"

    def refuses_an_older_version(self, history: Written, file: Path, version: int) -> None:
        """Bytes of a version that is not read any more are refused with what to do."""
        known: StateFormat = self.core.STATE
        error = self.refused(history, file.read_bytes())
        assert error.code == "STATE_VERSION"
        assert error.got.endswith(f"{known.kind} version {version}")
        assert error.expected.endswith(f"{known.kind} version {known.version}")
        assert "start from a new checkpoint" in error.fix


def bag(rows: list[dict[str, Any]]) -> list[Any]:
    """Rows to compare; of floats, twelve digits: a variance may be rounded otherwise."""
    short = [
        {name: float(f"{v:.12g}") if isinstance(v, float) else v for name, v in row.items()}
        for row in rows
    ]
    return sorted(map(comparable, short), key=repr)
