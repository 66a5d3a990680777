"""What is remembered, plain and compiled: told apart by identity and values, bounded, and safe to ask while asked."""

import gc
import random
import weakref

import pytest

from am.agent.memo import Memo, PlainMemo

memos = pytest.mark.parametrize("kind", [PlainMemo, Memo])


class Worker:
    def __init__(self):
        self.calls = 0

    def __call__(self):
        self.calls += 1
        return self.calls


def test_it_is_compiled_here():
    assert Memo is not PlainMemo


@memos
def test_the_same_objects_and_values_are_worked_out_once(kind):
    known, worker, jobs = kind(), Worker(), (1, 2)
    assert [known.of((jobs,), (3,), worker) for _ in range(3)] == [1, 1, 1]


@memos
def test_equal_objects_are_others_and_so_are_other_values(kind):
    known, worker = kind(), Worker()
    one, two = [1, 2], [1, 2]
    assert [known.of((one,), (3,), worker), known.of((two,), (3,), worker), known.of((one,), (4,), worker)] == [1, 2, 3]
    assert known.of((one, two), (), worker) == 4
    assert known.of((two, one), (), worker) == 5


@memos
def test_what_it_keeps_is_bounded_by_the_jobs_in_it(kind):
    known, worker = kind(most_parts=100), Worker()
    many = [(*range(9), number) for number in range(50)]
    for jobs in many:
        known.of((jobs,), (), worker)
    assert worker.calls == 50
    assert len(known) <= 10
    assert known.of((many[-1],), (), worker) == 50
    assert known.of((many[0],), (), worker) == 51


def test_compiled_it_answers_as_plain_does():
    rng = random.Random(0)
    objects = [tuple(range(rng.randint(0, 5))) or [number] for number in range(40)]
    for most_parts in (1, 7, 60, 400):
        plain, compiled, worked = PlainMemo(most_parts), Memo(most_parts), ([], [])
        for number in range(3000):
            asked = tuple(rng.choices(objects, k=rng.randint(1, 3)))
            values = tuple(rng.choices((0, 1.5, "s", (1,), None), k=rng.randint(0, 2)))
            first, second = (
                known.of(asked, values, lambda calls=calls, number=number: calls.append(number) or number)
                for known, calls in ((plain, worked[0]), (compiled, worked[1]))
            )
            assert first == second
            assert len(plain) == len(compiled)
        assert worked[0] == worked[1]
        assert 0 < len(worked[0]) < 3000 or most_parts == 1


@memos
def test_what_fails_is_told_and_not_remembered(kind):
    known, jobs = kind(), (1,)
    with pytest.raises(ZeroDivisionError):
        known.of((jobs,), (), lambda: 1 // 0)
    with pytest.raises(TypeError):
        known.of((jobs,), ([],), lambda: 1)
    assert len(known) == 0
    assert known.of((jobs,), (), lambda: 2) == 2


@memos
def test_it_may_be_asked_by_what_it_asks(kind):
    known, jobs = kind(most_parts=9), (1,)

    def deep(number):
        return number + known.of((jobs,), (number - 1,), lambda: deep(number - 1)) if number else 0

    assert known.of((jobs,), (30,), lambda: deep(30)) == sum(range(31))
    assert known.of((jobs,), (), lambda: known.of((jobs,), (), lambda: 1) + 1) == 2
    assert known.of((jobs,), (), lambda: 5) == 2


class Awkward:
    """A value that asks the memo while it is compared with another, or as it goes."""

    def __init__(self, known):
        self.known, self.asked = known, 0

    def __hash__(self):
        return 1

    def __eq__(self, other):
        self.asked += 1
        if self.asked < 4:
            self.known.of(((), object()), (), object)
        return self is other

    def __del__(self):
        self.known.of(((), object()), (), object)


@memos
def test_values_may_ask_it_while_they_are_compared_and_when_they_go(kind):
    known, jobs = kind(most_parts=12), (1,)
    for number in range(50):
        assert known.of((jobs,), (Awkward(known),), lambda number=number: number) == number
    assert len(known) <= 12
    known = None


@memos
def test_it_is_collected_with_what_it_keeps(kind):
    known = kind()
    gone = weakref.ref(known.of(((1,),), (), Worker))
    known.of((known,), (), lambda: known)
    assert gone() is not None
    known = None
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("asked", [(), ([1], (), int), ((), (), int), ((1,), [], int), ((1,), ())])
def test_compiled_it_refuses_what_it_cannot_tell_apart(asked):
    with pytest.raises(TypeError, match="a tuple of objects"):
        Memo().of(*asked)
