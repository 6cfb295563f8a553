"""Writers that wait for their writes, while the query is killed: is a read ever stale?

    python -m tests.reads                             100,000 pairs over three sinks, and 100 kills
    python -m tests.reads --pairs 3000 --kills 5      fewer
    python -m tests.reads --targets postgres --pairs 300 --kills 0 --writers 1 --burst 1
                                                      how long a wait is, next to the micro-batches

A writer produces records to Kafka, and waits for each with the token that Kafka acknowledged, in PostgreSQL (in SQL), in a
Parquet folder, or in SQLite. Then it looks for the record there. A query delivers the records to all three,
and is killed with SIGKILL at random times.
"""
