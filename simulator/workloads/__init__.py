"""Workloads: the paper's two, public traces, a generator and the testbed's mixes, as values of `simulator.workload`."""
