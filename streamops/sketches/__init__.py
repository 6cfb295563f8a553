"""Stored sketches: answers within a stated error, from little memory.

Windows and running aggregates compute a sketch like any other aggregate. Its result is the sketch
itself as bytes, to be stored, merged and queried later. Merging is exact: the sketch of a day is
that of its hours merged, to the last bit if the type of sketch allows it. Aggregates that return
estimates instead, such as ``approx_count_distinct``, are in :mod:`streamops.aggregates`.

========================  ==============================================================
``hll_sketch_agg``        distinct values, in the least memory
``theta_sketch_agg``      distinct values, for set operations
``kll_sketch_agg``        quantiles and ranks
``top_k_sketch_agg``      the most frequent items
``count_min_sketch``      frequencies of any item
``minhash_sketch_agg``    similarity of sets
``bloom_filter_agg``      membership in a set
``merge``                 stored sketches merged, as an aggregate
``estimate``              estimates of stored sketches, as a column
``estimate_count``        frequency of an item by stored sketches, as a column
``union``                 either of two sets, as a column
``intersection``          both of two sets, as a column
``difference``            one set without the other, as a column
``overlap``               sizes of what two sets share, as a column
``similarity``            similarity of two sets, as a column
``may_contain``           membership in a Bloom filter, as a condition
``read``                  a stored sketch as a value in plain Python
``to_datasketches``       sketches as images of Apache DataSketches, as a column
``from_datasketches``     and back
``datasketch_hash``       the hash for HyperLogLogs of the package datasketch
``minhash_hash``          the hash for MinHashes of the package datasketch
``seen``                  an operator: drop or flag duplicates over long horizons
========================  ==============================================================
"""

from streamops.sketches.aggregation import merge
from streamops.sketches.bloom import StoredBloomFilter, bloom_filter_agg, may_contain
from streamops.sketches.count_min import count_min_sketch
from streamops.sketches.counting import StoredCounts, estimate_count
from streamops.sketches.expressions import estimate, from_datasketches, to_datasketches
from streamops.sketches.hll import StoredHll, datasketch_hash, hll_sketch_agg
from streamops.sketches.kll import StoredKll, kll_sketch_agg
from streamops.sketches.minhash import (
    StoredMinHash,
    minhash_hash,
    minhash_sketch_agg,
    similarity,
)
from streamops.sketches.seen import seen
from streamops.sketches.stored import StoredSketch, read
from streamops.sketches.theta import (
    StoredTheta,
    difference,
    intersection,
    overlap,
    theta_sketch_agg,
    union,
)
from streamops.sketches.top_k import StoredTopK, top_k_sketch_agg

__all__ = [
    "StoredBloomFilter",
    "StoredCounts",
    "StoredHll",
    "StoredKll",
    "StoredMinHash",
    "StoredSketch",
    "StoredTheta",
    "StoredTopK",
    "bloom_filter_agg",
    "count_min_sketch",
    "datasketch_hash",
    "difference",
    "estimate",
    "estimate_count",
    "from_datasketches",
    "hll_sketch_agg",
    "intersection",
    "kll_sketch_agg",
    "may_contain",
    "merge",
    "minhash_hash",
    "minhash_sketch_agg",
    "overlap",
    "read",
    "seen",
    "similarity",
    "theta_sketch_agg",
    "to_datasketches",
    "top_k_sketch_agg",
    "union",
]
