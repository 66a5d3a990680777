"""Engines: where nodes come from and app masters are started."""
