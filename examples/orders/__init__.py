"""A small order service that publishes its events through an outbox table, and a query that reads them.

Run it with ``python -m examples.orders postgresql://user@host/database``.
"""
