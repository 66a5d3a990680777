"""The experiments on AlloX, in the order of its paper's figures."""

from __future__ import annotations

from themis_lab.paper.allox import cluster, completion, examples, sensitivity
from themis_lab.paper.own_runs import OwnRuns

EXPERIMENTS: tuple[OwnRuns, ...] = (
    *examples.EXPERIMENTS,
    *cluster.EXPERIMENTS,
    *completion.EXPERIMENTS,
    *sensitivity.EXPERIMENTS,
)
