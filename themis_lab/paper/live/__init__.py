"""The live experiment: a workload of the paper on the testbed under several policies, compared with the simulator."""
