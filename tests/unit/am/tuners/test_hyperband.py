"""Hyperband by hand: the paper's table, dealing jobs to brackets, brackets in step."""

import pytest
from tuner_cases import Search, failed, jobs, make, reached

from am.tuners.hyperband import Bracket, fill_brackets, hyperband, table
from am.tuners.port import Phase
from themis.errors import InputError

# Li et al., JMLR 18(185), table 1: jobs n_i and units r_i of each rung, by bracket, for R = 81 and eta = 3.
PAPERS_TABLE = {
    4: [(81, 1), (27, 3), (9, 9), (3, 27), (1, 81)],
    3: [(34, 3), (11, 9), (3, 27), (1, 81)],
    2: [(15, 9), (5, 27), (1, 81)],
    1: [(8, 27), (2, 81)],
    0: [(5, 81)],
}


def number(job_id):
    return int(job_id[1:])


def loss_by_number(job_id, at):
    """The first job of any bracket is its best, the second the second best, .."""
    return float(number(job_id))


class TestTable:
    def test_table_equals_papers(self):
        rows = {bracket.s: bracket.sizes for bracket in table(4, 3)}
        assert rows == {s: tuple(n for n, _ in rungs) for s, rungs in PAPERS_TABLE.items()}

    def test_a_search_runs_the_papers_table(self):
        """143 jobs of 810 iterations, a unit being 10: who of each bracket came how far."""
        arms = jobs(143, total=810)
        search = Search(hyperband(arms, eta=3, max_resource=81), arms)
        search.run_in_turns(810, loss_by_number)
        first = 0
        for rungs in PAPERS_TABLE.values():
            members = [arm.job_id for arm in arms[first : first + rungs[0][0]]]
            first += len(members)
            for jobs_in_rung, units in rungs:
                assert sum(search.at[job_id] >= units * 10 for job_id in members) == jobs_in_rung
        assert first == 143
        assert search.plan.best == "j00"

    def test_phases_of_brackets_are_in_step(self):
        """All jobs to 1 unit; those left of the first bracket and all of the others to 3; and so on."""
        phases = hyperband(jobs(143, total=81), eta=3, max_resource=81).plan().phases
        assert [(phase.jobs, phase.iterations) for phase in phases] == [
            (81 + 34 + 15 + 8 + 5, 1),
            (27 + 34 + 15 + 8 + 5, 2),
            (9 + 11 + 15 + 8 + 5, 6),
            (3 + 3 + 5 + 8 + 5, 18),
            (1 + 1 + 1 + 2 + 5, 54),
        ]

    @pytest.mark.parametrize(
        ("max_resource", "brackets"), [(1, 1), (2, 1), (3, 2), (80, 4), (81, 5), (100, 5), (242, 5)]
    )
    def test_whole_powers_count(self, max_resource, brackets):
        phases = hyperband(jobs(500, total=1000), eta=3, max_resource=max_resource).plan().phases
        assert len(phases) == brackets


class TestDealing:
    def test_more_jobs_than_table_repeat_it(self):
        brackets = fill_brackets(5 + 4, 1, 3)
        assert brackets == (
            Bracket(s=1, sizes=(3, 1)),
            Bracket(s=0, sizes=(2,)),
            Bracket(s=1, sizes=(3, 1)),
            Bracket(s=0, sizes=(1,)),
        )

    def test_fewer_jobs_fill_brackets_in_order(self):
        assert fill_brackets(83, 4, 3) == (
            Bracket(s=4, sizes=(81, 27, 9, 3, 1)),
            Bracket(s=3, sizes=(2, 1, 1, 1)),
        )

    @pytest.mark.parametrize(
        ("count", "phases"), [(1, 1), (4, 1), (5, 2), (16, 2), (17, 3), (49, 4), (143, 5), (144, 5)]
    )
    def test_by_default_all_brackets_have_jobs(self, count, phases):
        """Tables of 1, 5, 17, 49 and 143 jobs, for R = 1, 3, 9, 27 and 81."""
        assert len(make("hyperband", jobs(count, total=1000)).plan().phases) == phases

    def test_the_default_has_no_more_units_than_iterations(self):
        assert [phase.iterations for phase in make("hyperband", jobs(143, total=20)).plan().phases] == [2, 4, 14]

    @pytest.mark.parametrize("changed", [{"eta": 1}, {"max_resource": 0}, {"max_resource": 101}])
    def test_settings_that_cannot_be_used(self, changed):
        with pytest.raises(InputError):
            hyperband(jobs(9), **changed)


class TestBrackets:
    """Five jobs, R = 3: j00 to j02 are cut to one after 30 iterations, j03 and j04 never."""

    def search(self):
        arms = jobs(5, total=90)
        return Search(make("hyperband", arms), arms)

    def test_jobs_compete_within_their_bracket(self):
        search = self.search()
        assert search.plan.phases == (Phase(jobs=5, iterations=30), Phase(jobs=3, iterations=60))
        for job_id in sorted(search.plan.targets):
            search.step(job_id, 30, lambda job_id, _: {"j00": 0.9, "j01": 0.8, "j02": 0.7}.get(job_id, 5.0))
        assert search.plan.targets == {"j02": 90, "j03": 90, "j04": 90}
        assert search.plan.stopped == {"j00", "j01"}

    def test_best_job_is_best_of_all_brackets(self):
        search = self.search().run_in_turns(90, lambda job_id, _: 1.0 / (1 + number(job_id)))
        assert search.plan.best == "j04"

    def test_failed_bracket_leaves_others_unchanged(self):
        tuner = self.search().tuner
        for job_id in ("j00", "j01", "j02"):
            tuner.observe(failed(job_id))
        assert tuner.plan().phases == (Phase(jobs=2, iterations=30), Phase(jobs=2, iterations=60))
        for job_id in ("j03", "j04"):
            tuner.observe(reached(job_id, 30, 1.0))
        assert tuner.plan().targets == {"j03": 90, "j04": 90}
