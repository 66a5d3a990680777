"""OEF: the most efficient allocation of several GPU types that is fair (Mo, Xu, Lau, Middleware 2024)."""
