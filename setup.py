"""The compiled core of the exact auction; everything else about the build stands in pyproject.toml."""

from setuptools import Extension, setup

CORE = "rm_plugin/solvers/exact/core"
SOURCES = ("module", "cover_module", "cover", "fit", "lift", "pack", "prices", "prune", "search", "simplex", "weigh")
HEADERS = ("core", "cover", "cover_module", "fit", "hash", "lift", "pack", "prune", "simplex", "weigh")

setup(
    ext_modules=[
        Extension(
            "rm_plugin.solvers.exact._core",
            sources=[f"{CORE}/{name}.c" for name in SOURCES],
            depends=[f"{CORE}/{name}.h" for name in HEADERS],
            # Without a compiler the package installs all the same, and the solver `exact` tells what is missing.
            optional=True,
            # No contraction into fused operations: prices are the same on every machine of one libm.
            extra_compile_args=["-std=gnu11", "-O3", "-ffp-contract=off", "-Wall", "-Wextra"],
        )
    ]
)
