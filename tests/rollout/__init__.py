"""A new version of a job takes over while both versions are killed and others read.

    python -m tests.rollout                 ten rollouts and their way back, with 5 kills of each version
    python -m tests.rollout --rounds 1 --kills 2

A producer writes events to Kafka all the time. Version 1 of a job maintains a table of PostgreSQL. Version 2 begins at the start of the
topic, with a table of its own, and both are killed with SIGKILL at random times. When version 1 is stopped and
version 2 has all that it had, a view is switched; then the same way back. Readers of the view must see one version, and never go back. In the
end, both tables must have every event.
"""
