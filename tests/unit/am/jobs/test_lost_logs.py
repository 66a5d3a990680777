"""What an app knows of its jobs' losses after their logs were lost, for example with the machine that had them."""

import json
import math

import pytest

from am.master import _outcome
from themis.apps import MetricSpec
from themis.lifecycle import AppState


def next_attempt_without_logs(attempt, one, **settings):
    for job in one.jobs.values():
        job.log_path.unlink(missing_ok=True)
    return attempt(**settings)


def test_losses_that_ended_as_no_number_are_still_a_metric(attempt):
    settings = {"tuner": "single", "iterations": 10, "jobs": ("j0", "j1")}
    one = attempt(**settings)
    for job_id in settings["jobs"]:
        one.run(job_id, "step=10 loss=nan")
    expected = _outcome(one.app)
    again = next_attempt_without_logs(attempt, one, **settings)
    assert again.app.search.has_read_metric
    assert _outcome(again.app) == expected
    assert expected[0] is AppState.FINISHED
    assert "the newest loss of j0 is NaN or infinite" in expected[1]


@pytest.mark.parametrize(
    ("line", "metric", "best", "loss"),
    [
        ("step=10 loss=nan", MetricSpec(), "", math.nan),
        ("step=10 loss=0.5", MetricSpec(), "j0", 0.5),
        ("step=10 auc=0.75", MetricSpec(name="auc", mode="max"), "j0", 0.75),
    ],
)
def test_lone_job_keeps_its_last_loss_and_is_the_best_only_with_a_finite_one(attempt, line, metric, best, loss):
    settings = {"tuner": "single", "iterations": 10, "jobs": ("j0",), "metric": metric}
    one = attempt(**settings)
    one.run("j0", line)
    again = next_attempt_without_logs(attempt, one, **settings)
    for each in (one, again):
        assert each.app.search.best() == best
        assert each.jobs["j0"].shown_loss == pytest.approx(loss, nan_ok=True)


def test_search_of_which_each_job_ended_with_a_loss_still_knows_its_best(attempt):
    settings = {"tuner": "single", "iterations": 10, "jobs": ("j0", "j1")}
    one = attempt(**settings)
    one.run("j0", "step=10 loss=0.5")
    one.run("j1", "step=10 loss=0.25")
    assert next_attempt_without_logs(attempt, one, **settings).app.search.best() == "j1"


def test_newer_log_lines_replace_the_loss_of_the_earlier_attempt(attempt):
    settings = {"tuner": "single", "iterations": 10, "jobs": ("j0",)}
    one = attempt(**settings)
    one.run("j0", "step=5 loss=0.5")
    again = next_attempt_without_logs(attempt, one, **settings)
    with again.jobs["j0"].log_path.open("w") as file:
        file.write("step=10 loss=nan\n")
    again.watch.catch_up()
    assert math.isnan(again.jobs["j0"].loss)


def test_metric_is_journaled_before_the_tuner_hears_of_it(attempt):
    one = attempt()
    one.run("j0", "step=10 loss=nan")
    lines = [json.loads(line) for line in one.path.read_text().splitlines()]
    noted = next(number for number, line in enumerate(lines) if line.get("job", {}).get("read_metric"))
    observed = next(number for number, line in enumerate(lines) if "observation" in line)
    assert noted < observed


def test_journals_of_earlier_versions_show_by_a_loss_that_a_metric_was_read(attempt):
    one = attempt()
    one.run("j0", "step=10 loss=0.5")
    lines = [json.loads(line) for line in one.path.read_text().splitlines()]
    for line in lines:
        line.get("job", {}).pop("read_metric", None)
    one.path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert next_attempt_without_logs(attempt, one).app.search.has_read_metric
