"""The experiments on mixed devices, in the order of docs/explanation/choosing-a-policy.md."""

from __future__ import annotations

from themis_lab.paper import misstated_speeds, mixed

EXPERIMENTS = (*mixed.EXPERIMENTS, misstated_speeds.EXPERIMENT)
