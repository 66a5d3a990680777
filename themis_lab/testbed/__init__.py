"""The testbed experiment: the main job, its audit and its report."""
