"""The profiler: reads the jobs' logs as they grow."""
