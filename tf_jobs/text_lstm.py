"""An LSTM language model, by character: `python -m tf_jobs.text_lstm --iterations 200`."""

from __future__ import annotations

from tf_jobs.program import run_program

if __name__ == "__main__":
    run_program("text_lstm")
