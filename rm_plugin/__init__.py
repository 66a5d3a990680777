"""The ResourceManager module: arbiter, solvers, policies, service and engines."""
