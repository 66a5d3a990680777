"""A job that emulates training by measured speeds: `python -m tf_jobs.replay --model resnet50 --iterations 500`."""

from __future__ import annotations

from tf_jobs.signals import block_stop_signals

if __name__ == "__main__":
    block_stop_signals()

    from tf_jobs.replay_job import main

    main()
