"""What all tests share: one Hypothesis profile, so that every machine tries the same examples."""

from hypothesis import settings

settings.register_profile("themis", derandomize=True, max_examples=40, deadline=None, database=None)
settings.load_profile("themis")
