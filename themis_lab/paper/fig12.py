"""Figure 12: total GPU time on the testbed with workload 2."""

from __future__ import annotations

from themis_lab.paper.efficiency import Efficiency, PaperLine

EXPERIMENT = Efficiency(
    name="fig12",
    title="total GPU time, workload 2",
    workload="w2",
    alike=False,
    paper=(
        PaperLine(
            what="GPU time, themis under gandiva",
            over="gandiva",
            under="themis",
            of="gandiva",
            text="about 4.8",
            percent=4.8,
        ),
        PaperLine(
            what="GPU time, slaq over themis", over="slaq", under="themis", of="themis", text="about 250", percent=250.0
        ),
    ),
)
