"""The command line: ``streamops doctor``, ``state`` and ``why``, or ``python -m streamops`` with one of them."""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from streamops import __version__
from streamops.environment.doctor import Finding, diagnose, examine, run_smoke_query
from streamops.kernel.errors import StreamopsError
from streamops.kernel.parameters import import_object

if TYPE_CHECKING:
    from streamops.spark.operator import Operator
    from streamops.state import Rewritten

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
    if chosen.command == "why":
        return _explain(chosen)
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
    migrate = actions.add_parser(
        "migrate", help="write it in the current formats, or as the state of another operator"
    )
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
    migrate.add_argument(
        "--job",
        metavar="MODULE:OPERATOR",
        help="the operator that continues, or a function without arguments",
    )
    migrate.add_argument(
        "--frame",
        metavar="MODULE:FUNCTION",
        help="function of a session that returns the streaming frame to which the query applies the operator",
    )
    migrate.add_argument(
        "--rename",
        metavar="OLD=NEW",
        type=_pair,
        action="append",
        default=[],
        help="new name of a stored column or aggregate, repeatedly",
    )
    migrate.add_argument(
        "--number", type=int, help="number of the operator, if several have the same state"
    )
    migrate.add_argument(
        "--state-store", choices=("hdfs", "rocksdb"), help="another state store for all operators"
    )
    why = commands.add_parser("why", help="say why a query has a result of a key, or none")
    why.add_argument("checkpoint", help="the checkpoint; it is not changed, and the query may run")
    why.add_argument(
        "--job", required=True, help="module:name of the operator, or of the list of operators"
    )
    why.add_argument(
        "--source",
        action="append",
        default=[],
        help="module:name of an observe.files(...), topics(...) or table(...); twice for two inputs,"
        " or for a union; by default, files of Parquet with the columns of the operator",
    )
    why.add_argument(
        "--where",
        action="append",
        default=[],
        metavar="COLUMN=VALUE",
        help="value of a key column, repeatedly",
    )
    why.add_argument(
        "--null", action="append", default=[], metavar="COLUMN", help="a key column that is null"
    )
    why.add_argument(
        "--window", metavar="INSTANT[/END]", help="an instant in the window, or its start and end"
    )
    why.add_argument(
        "--since",
        metavar="MICRO-BATCH",
        help="the first micro-batch to read: its number, or a time",
    )
    return parser


def _pair(text: str) -> tuple[str, str]:
    """Two names with "=" between them."""
    old, equals, new = text.partition("=")
    if not (old and equals and new):
        raise argparse.ArgumentTypeError("OLD=NEW")
    return old, new


def _migrate(chosen: argparse.Namespace) -> list[Rewritten]:
    """Migrate a checkpoint, with the operator and the frame that the names lead to."""
    from streamops import state
    from streamops.state.stores import session_or_new

    made: Any = None if chosen.job is None else import_object(chosen.job, parameter="--job")
    operator: Operator | None = made() if inspect.isroutine(made) else made
    frame = None
    if chosen.frame is not None:
        frame = import_object(chosen.frame, parameter="--frame")(session_or_new(None))
    return state.migrate(
        chosen.checkpoint,
        chosen.to,
        operator,
        frame,
        rename=dict(chosen.rename),
        number=chosen.number,
        state_store=chosen.state_store,
    )


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


def _explain(chosen: argparse.Namespace) -> int:
    """Print why a query has a result, or none."""
    from streamops.observe.command import answer

    try:
        found = answer(
            chosen.checkpoint,
            chosen.job,
            sources=chosen.source,
            where=chosen.where,
            null=chosen.null,
            window=chosen.window,
            since=chosen.since,
        )
    except StreamopsError as error:
        print(error)
        return 1
    print(found)
    return 0


def _rewrite(chosen: argparse.Namespace) -> int:
    """Rewrite a checkpoint, and print what to do next."""
    from streamops import state

    try:
        if chosen.action == "migrate":
            done = _migrate(chosen)
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
