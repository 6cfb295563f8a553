"""Sketches in streaming state: answers within a stated error, from little memory.

A sketch is an aggregate like any other: hand it to windows. Its result is an estimate with its
bounds, or the sketch itself as bytes, to be stored, merged and asked later. Merging is exact: the
sketch of a day is that of its hours merged, to the last bit where the kind of sketch allows it.
"""

from streamops.sketches.aggregation import SketchAggregate
from streamops.sketches.bloom import BloomFilter, StoredBloom, bloom_fill, bloom_filter
from streamops.sketches.counting import CountBounds, StoredCounts, count_of
from streamops.sketches.counts import approx_frequency, frequency_sketch
from streamops.sketches.distinct import distinct
from streamops.sketches.exchange import from_datasketches, to_datasketches
from streamops.sketches.frequency import frequency
from streamops.sketches.heavy import (
    StoredHeavyHitters,
    approx_heavy_hitters,
    heavy_hitters_sketch,
)
from streamops.sketches.heavy_hitters import heavy_hitters
from streamops.sketches.hll import Hll, StoredHll, approx_distinct, datasketch_hash, hll_sketch
from streamops.sketches.kll import Kll, approx_quantiles, kll_sketch
from streamops.sketches.may_contain import may_contain
from streamops.sketches.merging import estimate, merged
from streamops.sketches.minhash import MinHashSketch, StoredMinHash, minhash_hash, minhash_sketch
from streamops.sketches.overlap import overlap
from streamops.sketches.overlapping import approx_overlap
from streamops.sketches.quantiles import quantiles
from streamops.sketches.reading import StoredSketch, read
from streamops.sketches.seen import seen
from streamops.sketches.sets import difference, intersection, overlap_of, union
from streamops.sketches.similarity import similarity
from streamops.sketches.stored_quantiles import StoredQuantiles
from streamops.sketches.theta import StoredTheta, theta_distinct, theta_sketch

__all__ = [
    "BloomFilter",
    "CountBounds",
    "Hll",
    "Kll",
    "MinHashSketch",
    "SketchAggregate",
    "StoredBloom",
    "StoredCounts",
    "StoredHeavyHitters",
    "StoredHll",
    "StoredMinHash",
    "StoredQuantiles",
    "StoredSketch",
    "StoredTheta",
    "approx_distinct",
    "approx_frequency",
    "approx_heavy_hitters",
    "approx_overlap",
    "approx_quantiles",
    "bloom_fill",
    "bloom_filter",
    "count_of",
    "datasketch_hash",
    "difference",
    "distinct",
    "estimate",
    "frequency",
    "frequency_sketch",
    "from_datasketches",
    "heavy_hitters",
    "heavy_hitters_sketch",
    "hll_sketch",
    "intersection",
    "kll_sketch",
    "may_contain",
    "merged",
    "minhash_hash",
    "minhash_sketch",
    "overlap",
    "overlap_of",
    "quantiles",
    "read",
    "seen",
    "similarity",
    "theta_distinct",
    "theta_sketch",
    "to_datasketches",
    "union",
]
