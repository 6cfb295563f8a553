"""The command line: ``python -m tests.kills``."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import tests.kills
from tests.kills.campaign import Campaign
from tests.kills.drivers import kill_drivers
from tests.kills.rounds import NeedsHuman, Report, table
from tests.kills.runtime import (
    kill_executors,
    kill_kafka,
    kill_postgres,
    kill_tasks,
    kill_workers,
    run_copies,
)
from tests.kills.targets import ALL, TARGETS, available
from tests.kills.zombies import run_zombies
from tests.servers import installed

PARTS: dict[str, tuple[Callable[[Campaign, Report, int], None], int]] = {
    "driver": (kill_drivers, 90),
    "workers": (kill_workers, 20),
    "executors": (kill_executors, 10),
    "tasks": (kill_tasks, 60),
    "copies": (run_copies, 30),
    "postgres": (kill_postgres, 10),
    "kafka": (kill_kafka, 10),
    "zombies": (run_zombies, 3),
}
"""The parts, and how many kills each has."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run parts of the campaign; 1 if a target differs from what it must be, or one was left out."""
    options = _parse(arguments)
    folder = options.folder or Path(tempfile.mkdtemp(prefix="streamops-kills-"))
    seed = random.randrange(2**32) if options.seed is None else options.seed
    print(f"seed {seed}, folder {folder}", flush=True)
    campaign = Campaign(folder=folder, seed=seed, targets=options.targets)
    reports: list[Report] = []
    left_out: set[str] = set()
    with ExitStack() as stack:
        for name in options.parts or PARTS:
            run, kills = PARTS[name]
            start_servers(campaign, name, stack)
            if options.targets is None:
                left_out.update(TARGETS.keys() - available(campaign.location))
            if getattr(campaign, name, True) is None:
                left_out.add(name)
                continue
            reports.append(Report(name))
            began = time.monotonic()
            try:
                run(campaign, reports[-1], options.kills or kills)
            except NeedsHuman as error:
                reports[-1].problems.append(f"drivers do not get any further: {error}")
            reports[-1].seconds = time.monotonic() - began
    print(f"\n{table(reports)}")
    is_right = all(report.is_right for report in reports)
    if is_right and options.folder is None:
        shutil.rmtree(folder)
    elif not is_right:
        print(f"\nsee {folder}")
    if left_out:
        # Name the parts and targets that are there to run without the others.
        print(f"\nLEFT OUT, because not installed: {', '.join(sorted(left_out))}")
    return 0 if is_right and not left_out else 1


def start_servers(campaign: Campaign, part: str, stack: ExitStack) -> None:
    """Start the servers that a part needs, if they are installed and do not run yet."""
    servers = {ALL[target].server for target in campaign.targets or TARGETS}
    for name, serve in (("postgres", installed.postgres), ("kafka", installed.kafka)):
        if getattr(campaign, name) is None and (part == name or name in servers):
            setattr(campaign, name, stack.enter_context(serve()))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.kills",
        description=tests.kills.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("parts", nargs="*", metavar="part", help="one of the parts above (all)")
    parser.add_argument("--kills", type=int, help="kills, or rounds of zombies, of each part")
    parser.add_argument(
        "--seed", type=int, help="repeats the draws of a run, which prints its seed"
    )
    parser.add_argument(
        "--targets", nargs="+", choices=ALL, help="the targets (all that are there)"
    )
    parser.add_argument("--folder", type=Path, help="of the rounds; it stays (a temporary one)")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.parts if name not in PARTS]
    if unknown:
        parser.error(f"there is no part {unknown[0]!r}: {', '.join(PARTS)}")
    return options


if __name__ == "__main__":
    sys.exit(main())
