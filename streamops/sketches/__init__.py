"""Sketches in streaming state: answers within a stated error, from little memory.

A sketch is an aggregate like any other: hand it to windows. Its result is an estimate with its
bounds, or the sketch itself as bytes, to be stored, merged and asked later. Merging is exact: the
sketch of a day is that of its hours merged, to the last bit where the kind of sketch allows it.
"""

from streamops.sketches.aggregation import SketchAggregate
from streamops.sketches.bloom import BloomFilter, StoredBloom, bloom_fill, bloom_filter
from streamops.sketches.may_contain import may_contain
from streamops.sketches.merging import estimate, merged
from streamops.sketches.reading import StoredSketch, read
from streamops.sketches.seen import seen

__all__ = [
    "BloomFilter",
    "SketchAggregate",
    "StoredBloom",
    "StoredSketch",
    "bloom_fill",
    "bloom_filter",
    "estimate",
    "may_contain",
    "merged",
    "read",
    "seen",
]
