"""Stored sketches: estimates with a stated error, in little memory.

Windows and running aggregates compute a sketch like any other aggregate. Its result is the sketch
itself as bytes, to be stored, merged and queried later. The sketch of a day is the merged sketches of
its hours, identical to the last bit if the type of sketch allows it. Aggregates that return
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
``datasketch_hash``       the hash for sketches of the package datasketch
``seen``                  an operator: drop or flag duplicates over long horizons
========================  ==============================================================
"""

from streamops.kernel.calls import explain_calls
from streamops.sketches.aggregation import merge
from streamops.sketches.bloom import StoredBloomFilter, bloom_filter_agg, may_contain
from streamops.sketches.count_min import StoredCounts, count_min_sketch, estimate_count
from streamops.sketches.hll import StoredHll, hll_sketch_agg
from streamops.sketches.kll import StoredKll, kll_sketch_agg
from streamops.sketches.minhash import (
    StoredMinHash,
    datasketch_hash,
    minhash_sketch_agg,
    similarity,
)
from streamops.sketches.seen import seen
from streamops.sketches.stored import (
    StoredSketch,
    estimate,
    from_datasketches,
    read,
    to_datasketches,
)
from streamops.sketches.theta import (
    StoredTheta,
    difference,
    intersection,
    overlap,
    theta_sketch_agg,
    union,
)
from streamops.sketches.top_k import top_k_sketch_agg

__all__ = [
    "StoredBloomFilter",
    "StoredCounts",
    "StoredHll",
    "StoredKll",
    "StoredMinHash",
    "StoredSketch",
    "StoredTheta",
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

explain_calls(globals())
