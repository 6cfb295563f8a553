"""Notebooks as pages: text, code, and the stored output with its pictures."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any


def notebook_page(path: Path) -> tuple[str, dict[str, bytes]]:
    """Return a notebook as Markdown, and its pictures by file name."""
    notebook = json.loads(path.read_text())
    parts: list[str] = []
    pictures: dict[str, bytes] = {}
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        if cell["metadata"].get("jupyter", {}).get("source_hidden"):
            continue  # what draws the pictures
        parts.append(f"```python\n{source}\n```")
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if "image/png" in data:
                name = f"{path.stem}-{len(pictures):02d}.png"
                pictures[name] = base64.b64decode("".join(data["image/png"]))
                parts.append(f"![Output of the cell above]({name})")
            else:
                text = "".join(output.get("text") or data.get("text/plain", ""))
                parts.append(f"```text\n{text.rstrip()}\n```" if text.strip() else "")
    download = f'<a href="../{path.name}" download>Download this notebook</a>.'
    return "\n\n".join(part for part in [*parts, download] if part) + "\n", pictures


def title(path: Path) -> str:
    """Return the first heading of a page or notebook."""
    text = path.read_text()
    if path.suffix == ".ipynb":
        cells: list[Any] = json.loads(text)["cells"]
        text = "".join(cells[0]["source"])
    first = next(line for line in text.splitlines() if line.startswith("# "))
    return first.removeprefix("# ")
