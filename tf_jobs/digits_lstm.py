"""An LSTM that reads the rows of each image of the digits: `python -m tf_jobs.digits_lstm --iterations 200`."""

from __future__ import annotations

from tf_jobs.program import run_program

if __name__ == "__main__":
    run_program("digits_lstm")
