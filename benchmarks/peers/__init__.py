"""The same workloads in other engines, next to streamops and Spark's own operators."""
