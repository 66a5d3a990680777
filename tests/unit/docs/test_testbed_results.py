"""The tables of docs/how-to/testbed.md are those of the runs whose rows are kept beside it."""

import csv
from collections import defaultdict
from statistics import median

import numpy as np
import pytest
from documents import ROOT, code, text_of

PAGE = "docs/how-to/testbed.md"
HEAD = "| policy | max rho |"


def rows_of(workload):
    with (ROOT / f"docs/results/testbed-{workload}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def reported(number):
    """A table of the page as cells, a row a policy; workload 2 comes first."""
    table = text_of(PAGE).split(HEAD)[number].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


def runs(rows, source, policy):
    """A policy's runs, each as its rows by app."""
    found = defaultdict(dict)
    for row in rows:
        if (row["source"], row["policy"]) == (source, policy):
            found[row["seed"]][row["app"]] = row
    return list(found.values())


def column(run, name):
    return [float(row[name]) for row in run.values()]


def largest(run):
    return max(column(run, "rho_themis"))


def gpu_min(run):
    return sum(column(run, "gpu_time_s")) / 60.0


def placement(run):
    return float(np.mean(column(run, "placement_score")))


def spread(run):
    low, high = np.percentile(column(run, "rho_themis"), [5, 95])
    return float(high - low)


def over_ideal(run):
    return float(np.mean([rho > 1.05 for rho in column(run, "rho_themis")]))


def predicted_by_measured(live, predictions):
    return median(
        median(float(run[app]["completion_s"]) for run in predictions) / float(row["completion_s"])
        for app, row in live.items()
    )


@pytest.mark.parametrize(("number", "workload"), [(1, "w2"), (2, "w1")])
def test_the_tables_match_the_recorded_rows(number, workload):
    rows = rows_of(workload)
    table = reported(number)
    assert {name for cells in table for name in code(cells[0])} == {row["policy"] for row in rows}
    for cells in table:
        (policy,) = code(cells[0])
        (live,), predictions = runs(rows, "testbed", policy), runs(rows, "simulator", policy)
        assert len(predictions) == 3
        assert cells[1:11] == [
            f"{largest(live):.2f}",
            f"{median(map(largest, predictions)):.2f}",
            f"{median(column(live, 'rho_themis')):.2f}",
            f"{spread(live):.2f}",
            f"{over_ideal(live):.0%}".replace("%", " %"),
            f"{gpu_min(live):.0f}",
            f"{median(map(gpu_min, predictions)):.0f}",
            f"{placement(live):.3f}",
            f"{median(map(placement, predictions)):.3f}",
            f"{predicted_by_measured(live, predictions):.2f}",
        ], policy


def test_the_page_says_how_many_apps_are_worse_off_than_alone_by_other_definitions():
    rows = rows_of("w1")
    live = [run for policy in sorted({row["policy"] for row in rows}) for run in runs(rows, "testbed", policy)]
    isolated, private = (
        sorted(sum(rho > 1.0 for rho in column(run, name)) for run in live)
        for name in ("rho_isolated_share", "rho_private_cluster")
    )
    assert f"`isolated_share`, {isolated[0]} to {isolated[-1]} of the {len(live[0])} apps" in text_of(PAGE)
    assert f"`private_cluster` {private[0]} to {private[-1]}." in text_of(PAGE)
