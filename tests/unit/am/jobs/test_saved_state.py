"""Whose files count as checkpoints of a job, and when a job counts as saved."""

from types import SimpleNamespace

import pytest

from am.jobs.saved_state import checkpoint_folders, has_newer_checkpoint
from themis.apps import ProgramSpec
from themis.config.placeholders import CHECKPOINT_PATH_VARIABLE

COMMAND = ProgramSpec(name="", command="train")
CATALOGUE = ProgramSpec(name="digits")


def one_app(tmp_path, *job_ids, program=COMMAND, uri="file:///nowhere"):
    """An app whose jobs have folders below `tmp_path`, by their ids."""
    jobs = {
        job_id: SimpleNamespace(
            job_id=job_id, folder=tmp_path / job_id, saved_iteration=5, started_from=5, files_changed_s=0.0
        )
        for job_id in job_ids
    }
    return SimpleNamespace(
        spec=SimpleNamespace(program=program), checkpoint_uri=uri, search=SimpleNamespace(jobs=jobs)
    ), [*jobs.values()]


@pytest.mark.parametrize(("jobs", "shared"), [(("a",), True), (("a", "b"), False)])
def test_folder_that_all_jobs_share_counts_for_the_only_job(tmp_path, jobs, shared):
    program = ProgramSpec(name="", command="train", environment={CHECKPOINT_PATH_VARIABLE: str(tmp_path / "shared")})
    app, (job, *_) = one_app(tmp_path, *jobs, program=program, uri=f"file://{tmp_path}/checkpoints")
    own = tmp_path / "checkpoints" / "a"
    assert checkpoint_folders(app, job) == [own, *[tmp_path / "shared"] * shared]


def test_folder_with_that_of_another_job_in_it_does_not_count(tmp_path):
    app, (job, _) = one_app(tmp_path / "a", "inner", "b", uri=f"file://{tmp_path}")
    job.job_id = "a"
    assert checkpoint_folders(app, job) == []


@pytest.mark.parametrize(("program", "saved"), [(COMMAND, True), (CATALOGUE, False)])
def test_job_whose_folders_are_elsewhere_counts_as_saved_unless_its_checkpoints_are_known(tmp_path, program, saved):
    app, (job,) = one_app(tmp_path, "a", program=program, uri="hdfs://name:8020/checkpoints")
    job.files_changed_s = None
    assert has_newer_checkpoint(app, job) is saved
    job.saved_iteration = 6
    assert has_newer_checkpoint(app, job)
