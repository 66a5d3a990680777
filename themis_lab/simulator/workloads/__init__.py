"""Workloads as values of `workload.py`: the paper's two, public traces, a generator and the testbed's mixes."""
