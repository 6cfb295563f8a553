"""Write the stored states and sketches that do not exist: ``python -m tests.golden.record``.

The bytes of a release belong to its users, and are never written again. Before the first release,
``python -m tests.golden.record --again`` deletes all of them, and writes those of today.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

FOLDER = Path(__file__).parent
MODULES = [
    path.stem
    for name in ("states", "*_states", "*_sketches", "*_payloads", "test_golden_frame")
    for path in sorted(FOLDER.glob(f"{name}.py"))
    if not path.stem.endswith("golden_states")
]


def files() -> dict[Path, bytes]:
    """All stored states and sketches, as they are written today."""
    return {
        file: blob
        for name in MODULES
        for file, blob in import_module(f"tests.golden.{name}").files().items()
    }


def main(again: bool) -> None:
    """Write the files."""
    blobs = files()
    for file in FOLDER.glob("*.bin") if again else ():
        file.unlink()
    for file, blob in blobs.items():
        if not file.exists():
            file.write_bytes(blob)
            print(f"{file.name}: {len(blob)} bytes")


if __name__ == "__main__":
    main("--again" in sys.argv[1:])
