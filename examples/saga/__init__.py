"""Saga: an order needs a seat and a payment, two entities that no transaction spans.

Run it with ``python -m examples.saga``. Both are reserved (tentative) before one of them is confirmed. A
process manager per order reads what happened to one, and sends commands to the other.

Two topics connect two operators in a circle: ``commands`` to seats and payments, and ``messages`` to orders.
A topic may deliver twice and in any order. Its records have the time at which they were appended.
"""
