"""The command line: ``streamops doctor`` and ``streamops state``, or ``python -m streamops`` with either."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence

from streamops import __version__
from streamops.environment.doctor import Finding, diagnose, examine, run_smoke_query
from streamops.kernel.errors import StreamopsError

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
    chosen = _parser().parse_args(arguments)
    if chosen.command == "state":
        return _rewrite(chosen)
    if chosen.checkpoint is not None:
        return _describe(chosen.checkpoint)
    well = _report(examine())
    if chosen.session:
        well &= _report(_examine_session())
    print("all is well" if well else "something is wrong: see the remedies above")
    return 0 if well else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m streamops")
    parser.add_argument("--version", action="version", version=f"streamops {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    doctor = commands.add_parser(
        "doctor",
        help="say what is wrong with this environment or with a checkpoint, and how to mend it",
    )
    doctor.add_argument(
        "checkpoint",
        nargs="?",
        help="list the operators of this checkpoint, the size of their state, and its problems",
    )
    doctor.add_argument(
        "--session",
        action="store_true",
        help="also start a local Spark session and run a small stateful query on it",
    )
    state = commands.add_parser("state", help="rewrite the checkpoint of a stopped query")
    actions = state.add_subparsers(dest="action", required=True)
    rescale = actions.add_parser("rescale", help="write it with another number of shards")
    migrate = actions.add_parser("migrate", help="write it in the current formats")
    for action in (rescale, migrate):
        action.add_argument("checkpoint", help="the checkpoint; it is not changed")
        action.add_argument("--to", required=True, help="directory of the new checkpoint")
    rescale.add_argument("--shards", type=int, required=True, help="the new number of shards")
    rescale.add_argument(
        "--operator",
        type=int,
        action="append",
        help="number of an operator to change, repeatedly; by default all of streamops",
    )
    rescale.add_argument(
        "--partitions", type=int, help="also change Spark's number of partitions of the state"
    )
    return parser


def _describe(checkpoint: str) -> int:
    """Print a report about a checkpoint."""
    from streamops import state

    try:
        report = state.describe(checkpoint)
    except StreamopsError as error:
        print(error)
        return 1
    print(report)
    return 1 if report.problems else 0


def _rewrite(chosen: argparse.Namespace) -> int:
    """Rewrite a checkpoint, and print what to do next."""
    from streamops import state

    try:
        if chosen.action == "migrate":
            done = state.migrate(chosen.checkpoint, chosen.to)
        else:
            done = state.rescale(
                chosen.checkpoint,
                chosen.to,
                shards=chosen.shards,
                operators=chosen.operator,
                partitions=chosen.partitions,
            )
    except StreamopsError as error:
        print(error)
        return 1
    for of in done:
        shards = (
            f"{of.shards_before} -> {of.shards}" if of.shards != of.shards_before else of.shards
        )
        print(f"operator {of.operator}: {of.name}, {shards} shards, {of.entries} rows of state")
    print(
        f"verified. Start the query with the checkpoint {chosen.to}"
        + (f" and .options(shards={chosen.shards})" if chosen.action == "rescale" else "")
    )
    return 0


def _examine_session() -> Iterable[Finding]:
    try:
        from streamops.environment.session import local_session

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
