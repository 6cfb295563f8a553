"""The command line: ``python -m examples.orders postgresql://user@host/database``."""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Place orders, read their events, and return 0 if orders and events agree, else 1.

    Parameters
    ----------
    arguments : sequence of str, optional
        The command-line arguments; by default those of this process.
    """
    chosen = _parser().parse_args(arguments)
    missing = [name for name in ("psycopg", "adbc_driver_postgresql") if find_spec(name) is None]
    if missing:
        print("not installed: pip install 'streamops[postgres]' 'psycopg[binary]'")
        return 2

    # Imported late: help needs neither Spark nor a database.
    import psycopg

    from examples.orders import job, service
    from streamops import local_session

    rng = random.Random(chosen.seed)
    spark = local_session(app_name="streamops orders")
    try:
        with psycopg.connect(chosen.url, autocommit=True) as connection:
            service.create_tables(connection)
            job.start(spark, chosen.url, chosen.out).awaitTermination()
            for number in range(chosen.orders):
                order = service.create_order(connection, f"customer {number % 7}", 100 + number)
                change = rng.choice([service.ship_order, service.cancel_order, None])
                if change is not None:
                    change(connection, order)
            job.start(spark, chosen.url, chosen.out).awaitTermination()
            wrong = job.differences(connection, chosen.out)
            (count,) = connection.execute("SELECT count(*) FROM orders").fetchall()[0]
    finally:
        spark.stop()
    print(f"{count} orders, {len(job.read_events(chosen.out))} events in {chosen.out}")
    print(*wrong, sep="\n")
    print("FAILED" if wrong else "VERIFIED: each order has its events, and each event its order")
    return 1 if wrong else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m examples.orders",
        description="An order service that writes each order and its event in one transaction, and a "
        "query that reads the events from the log of the database, each exactly once.",
    )
    parser.add_argument("url", help="a database to create the tables in, without a password")
    parser.add_argument("--orders", type=int, default=50, help="to place (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of what happens to them")
    parser.add_argument(
        "--out", type=Path, default=Path("out/orders"), help="folder of the results (%(default)s)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
