"""The main job: a year of real departures from New York, windowed, corrected, sketched, joined, searched and verified.

Run it with ``python -m examples.flights``.
"""
