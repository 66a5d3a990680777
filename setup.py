"""C extensions: the exact auction, the packing of jobs, candidates for bids. pyproject.toml has the rest."""

from setuptools import Extension, setup

CORE, PACKING = "rm_plugin/solvers/exact/core", "am/agent/core"
WITH_HEADER = (
    *("best_fit", "bids_module", "completion_bound", "dominance", "group_capacity", "lazy_constraints", "lifting"),
    *("one_machine", "pattern_cover", "pattern_cover_module", "pin_shares", "placement_search", "row_ordering"),
    *("row_ordering_module", "row_packing", "shared_pin_costs", "simplex"),
)
SOURCES = (*WITH_HEADER, "module", "prices", "search")
HEADERS = (*WITH_HEADER, "buffer", "hash", "problem")
CANDIDATES = ("enumeration", "dominance", "list_scheduling", "multifit", "gang_layout")

# No contraction into fused operations: prices and times are the same on every machine of one libm.
ARGUMENTS = ["-std=gnu11", "-O3", "-ffp-contract=off", "-Wall", "-Wextra"]

setup(
    ext_modules=[
        Extension(
            "rm_plugin.solvers.exact._core",
            sources=[f"{CORE}/{name}.c" for name in SOURCES],
            depends=[f"{CORE}/{name}.h" for name in HEADERS],
            extra_compile_args=ARGUMENTS,
        ),
        Extension(
            "am.agent._packing",
            sources=[
                f"{PACKING}/{name}.c" for name in ("packing_module", "packing", "least_slack", "schedule_simulation")
            ],
            depends=[
                f"{PACKING}/{name}.h"
                for name in ("arrays", "limits", "packing", "packer", "least_slack", "schedule_simulation", "shapes")
            ],
            extra_compile_args=ARGUMENTS,
        ),
        Extension(
            "am.agent._candidates",
            sources=[f"{PACKING}/{name}.c" for name in ("candidates_module", *CANDIDATES)],
            depends=[f"{PACKING}/{name}.h" for name in ("arrays", *CANDIDATES, "shapes")],
            extra_compile_args=ARGUMENTS,
        ),
    ]
)
