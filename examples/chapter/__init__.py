"""The seven figures of the stream-processing chapter of *Designing Data-Intensive Applications*, computed.

``python -m examples.chapter 11-4`` computes a figure, asserts what it shows, and prints it; without a number, all of
them. ``--save FOLDER`` also draws them. [The chapter, runnable](../../docs/chapter.md) has the pictures.
"""
