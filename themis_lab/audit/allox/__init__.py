"""The audit of AlloX: random instances, and what must hold for them."""
