"""The command line: ``python -m streamops doctor``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence

from streamops.kernel.errors import StreamopsError
from streamops.spark.doctor import Finding, diagnose, examine, run_smoke_query

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit code of the process.

    Parameters
    ----------
    arguments : sequence of str, optional
        The words after ``python -m streamops``; those of this process by default.

    Returns
    -------
    int
        0 where all is well, 1 where something is wrong with the environment.
    """
    parser = argparse.ArgumentParser(prog="python -m streamops")
    commands = parser.add_subparsers(dest="command", required=True)
    doctor = commands.add_parser(
        "doctor", help="say what is wrong with this environment, and how to mend it"
    )
    doctor.add_argument(
        "--session",
        action="store_true",
        help="also start a local Spark session and run a small stateful query on it",
    )
    chosen = parser.parse_args(arguments)
    well = _report(examine())
    if chosen.session:
        well &= _report(_examine_session())
    print("all is well" if well else "something is wrong: see the remedies above")
    return 0 if well else 1


def _examine_session() -> Iterable[Finding]:
    try:
        from streamops.spark.session import local_session

        spark = local_session(app_name="streamops doctor")
    except (ImportError, StreamopsError) as error:
        yield Finding("session", False, str(error), "mend the problems above first")
        return
    try:
        yield from diagnose(spark)
        yield run_smoke_query(spark)
    finally:
        spark.stop()


def _report(findings: Iterable[Finding]) -> bool:
    well = True
    for finding in findings:
        word = "PROBLEM" if not finding.ok else "hint" if finding.remedy else "ok"
        print(f"{word:<8}{finding.name:<20}{finding.found}")
        if finding.remedy:
            print(f"{'':<8}{'':<20}remedy: {finding.remedy}")
        well &= finding.ok
    return well


if __name__ == "__main__":
    sys.exit(main())
