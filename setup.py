"""The compiled parts: the core of the exact auction, the packing of jobs, asks of bids. pyproject.toml has the rest."""

from setuptools import Extension, setup

CORE, PACKING = "rm_plugin/solvers/exact/core", "am/agent/core"
WITH_HEADER = (
    *("best_fit", "bids_module", "completion_bound", "dominance", "group_capacity", "lazy_constraints", "lifting"),
    *("one_machine", "pattern_cover", "pattern_cover_module", "pin_shares", "placement_search", "row_ordering"),
    *("row_ordering_module", "row_packing", "shared_pin_costs", "simplex"),
)
SOURCES = (*WITH_HEADER, "module", "prices", "search")
HEADERS = (*WITH_HEADER, "buffer", "hash", "problem")

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
            sources=[f"{PACKING}/{name}.c" for name in ("module", "packing", "least_slack", "following")],
            depends=[
                f"{PACKING}/{name}.h"
                for name in ("arrays", "following", "limits", "packing", "packer", "least_slack", "shapes")
            ],
            # Without a compiler `am/agent/packing.py` and `am/jobs/gpu_division.py` do the same, only slower.
            optional=True,
            extra_compile_args=ARGUMENTS,
        ),
        Extension(
            "am.agent._asking",
            sources=[
                f"{PACKING}/{name}.c"
                for name in ("asking_module", "choosing", "covering", "dealing", "fitting", "laying")
            ],
            depends=[
                f"{PACKING}/{name}.h"
                for name in ("arrays", "choosing", "covering", "dealing", "fitting", "laying", "shapes")
            ],
            # Without a compiler `fitted`, `filled`, `dealt`, `divisions` and `selection` do the same, only slower.
            optional=True,
            extra_compile_args=ARGUMENTS,
        ),
        Extension(
            "am.agent._memo",
            sources=[f"{PACKING}/memo_module.c"],
            # Without a compiler `am/agent/memo.py` does the same, only slower.
            optional=True,
            extra_compile_args=ARGUMENTS,
        ),
    ]
)
