"""The main job: a year of real departures from New York, windowed, corrected, sketched and verified.

Run it with ``python -m streamops.demo``.
"""
