"""Place, ship and cancel orders, and kill the process after a number of statements.

Arguments: connection string, number of statements. What was committed for sure is printed.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import psycopg

from examples.orders import service


class CrashingConnection(psycopg.Connection[Any]):
    """A connection that kills the process after a number of statements."""

    left = 0

    def execute(self, *arguments: Any, **more: Any) -> Any:
        done = super().execute(*arguments, **more)
        CrashingConnection.left -= 1
        if not CrashingConnection.left:
            os.kill(os.getpid(), signal.SIGKILL)
        return done


def main(where: str, statements: int) -> None:
    CrashingConnection.left = statements
    with CrashingConnection.connect(where, autocommit=True) as connection:
        for number in range(100):
            order = service.create_order(connection, f"customer {number}", 100 + number)
            print("placed", order, flush=True)
            if number % 3 == 0:
                service.ship_order(connection, order)
                print("shipped", order, flush=True)
            if number % 3 == 1:
                service.cancel_order(connection, order)
                print("cancelled", order, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
