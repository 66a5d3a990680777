"""Benchmarks of Themis on random workloads that follow from a seed."""
