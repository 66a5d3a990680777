from am.agent.memo import Memo


class Worker:
    def __init__(self):
        self.calls = 0

    def __call__(self):
        self.calls += 1
        return self.calls


def test_the_same_objects_and_values_are_worked_out_once():
    known, worker, jobs = Memo(), Worker(), (1, 2)
    assert [known.of((jobs,), (3,), worker) for _ in range(3)] == [1, 1, 1]


def test_equal_objects_are_others_and_so_are_other_values():
    known, worker = Memo(), Worker()
    one, two = [1, 2], [1, 2]
    assert [known.of((one,), (3,), worker), known.of((two,), (3,), worker), known.of((one,), (4,), worker)] == [1, 2, 3]


def test_what_it_keeps_is_bounded_by_the_jobs_in_it():
    known, worker = Memo(most_parts=100), Worker()
    many = [(*range(9), number) for number in range(50)]
    for jobs in many:
        known.of((jobs,), (), worker)
    assert worker.calls == 50
    assert len(known._known) <= 10
    assert known.of((many[-1],), (), worker) == 50
    assert known.of((many[0],), (), worker) == 51
