"""The testbed experiment: a workload of the paper's under several policies, live, beside the simulator's prediction."""
