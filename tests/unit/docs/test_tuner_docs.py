"""docs/reference/tuners.md: its tables are what tuners do, its plug-ins work, its group files are valid."""

import random

import pytest
from documents import ROOT, block, blocks, code, table_rows
from tuner_cases import Search, jobs

from am.tuners.hyperband import hyperband, table
from submarine_client.programs import check_program
from themis.config.group_file import GroupFile, build_app, load_group
from themis.config.loader import fit, parse_yaml
from themis.config.tuner_settings import TUNERS

PAGE = "docs/reference/tuners.md"


def test_every_tuner_is_documented():
    rows = table_rows(PAGE, "tuner")
    assert [code(row[0])[0] for row in rows] == list(TUNERS)
    waits = {code(row[0])[0] for row in rows if row[3] == "yes"}
    assert waits == {"single", "successive_halving", "hyperband"}


def test_the_papers_table():
    brackets = table(4, 3)
    shown = [[cell for cell in row if cell] for row in table_rows(PAGE, "s = 4")]
    wanted = [
        [f"{b.sizes[i]} to {3 ** (4 - b.s + i)}" for b in brackets if i < len(b.sizes)] for i in range(len(brackets))
    ]
    assert shown == wanted


def test_the_worked_example_is_that_of_the_file():
    app = load_group(ROOT / "conf/apps/replay-hyperband.yaml")
    search = Search(hyperband(app.jobs, **app.tuner.settings), list(app.jobs))
    groups = (range(9), range(9, 14), range(14, 17))
    rng = random.Random(0)
    for number, row in enumerate(table_rows(PAGE, "phase"), start=1):
        targets = search.plan.targets
        counts = [sum(f"job-{place:02d}" in targets for place in group) for group in groups]
        assert row == [str(each) for each in (number, next(iter(targets.values())), *counts, len(targets))]
        search.run_phase(lambda *_: rng.random())
    assert search.plan.finished


@pytest.mark.parametrize("place", [0, 1, 2])
def test_the_plug_ins_shown_work(place):
    part = [each for each in blocks(PAGE) if each.mark == "plug-in"][place]
    names = {}
    exec(part.body, names)
    plugin = names[("PATIENT", "QUARTER", "GENETIC")[place]]
    arms = jobs(6)
    search = Search(plugin.make(arms), arms)
    search.run_in_turns(5, lambda job_id, at: int(job_id[1:]) + (1.0 / at if job_id == "j00" else at / 100))
    assert search.plan.best == "j00"
    assert bool(search.plan.stopped) == (place == 0)


@pytest.mark.parametrize(("mark", "count"), [("group: optuna", 8), ("group: optuna sampler", 100)])
def test_the_group_files_shown_are_valid(mark, count):
    file = fit(GroupFile, parse_yaml(block(PAGE, mark).body, mark), mark)
    assert len(check_program(build_app(file, mark), mark).jobs) == count
