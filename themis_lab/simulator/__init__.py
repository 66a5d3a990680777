"""The simulator: virtual time round the production arbiter, policies, agents, tuners and planner."""
