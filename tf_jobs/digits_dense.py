"""A dense net on the digits data set: `python -m tf_jobs.digits_dense --iterations 200`."""

from __future__ import annotations

from tf_jobs.program import run_program

if __name__ == "__main__":
    run_program("digits_dense")
