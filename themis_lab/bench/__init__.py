"""Benchmarks of Themis on seeded workloads: what they draw, how they measure, what they print."""
