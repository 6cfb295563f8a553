"""The command line: ``python -m examples.chapter``."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import streamops
from examples.chapter import figures

FIGURES: dict[str, tuple[Callable[..., Any], str]] = {
    "11-1": (figures.share_messages, "draw_sharing"),
    "11-2": (figures.redeliver, "draw_redelivery"),
    "11-3": (figures.read_log, "draw_log"),
    "11-4": (figures.race, "draw_race"),
    "11-5": (figures.follow, "draw_followers"),
    "11-6": (figures.integrate, "draw_calculus"),
    "11-7": (figures.compare_clocks, "draw_clocks"),
}


def main(arguments: list[str] | None = None) -> None:
    """Compute figures, and print what they show."""
    parser = argparse.ArgumentParser(prog="python -m examples.chapter")
    parser.add_argument("figures", nargs="*", help=", ".join(FIGURES) + " (all)")
    parser.add_argument("--save", type=Path, metavar="FOLDER", help="draw pictures with matplotlib")
    options = parser.parse_args(arguments)
    unknown = set(options.figures) - set(FIGURES)
    if unknown:
        parser.error(f"no figure {', '.join(sorted(unknown))}; there are {', '.join(FIGURES)}")
    for number in options.figures or FIGURES:
        compute, draw = FIGURES[number]
        found = compute(*([streamops.local_session()] if compute is figures.share_messages else []))
        title = str(compute.__doc__).splitlines()[0].partition(": ")[2]
        print(f"{number}  {title}")
        if options.save:
            from examples.chapter import pictures

            options.save.mkdir(parents=True, exist_ok=True)
            path = options.save / f"chapter_{number}.png"
            getattr(pictures, draw)(found).savefig(path, dpi=100)
            print(f"      {path}")


if __name__ == "__main__":
    main()
