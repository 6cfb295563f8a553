"""Benchmarks: workloads x systems, measured side by side in one run (`python -m benchmarks`)."""
