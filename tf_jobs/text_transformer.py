"""A transformer language model, by character: `python -m tf_jobs.text_transformer --iterations 200`."""

from __future__ import annotations

from tf_jobs.program import run_program

if __name__ == "__main__":
    run_program("text_transformer")
