import math

from themis_lab.simulator.events import EventQueue, InTurns, Phase


def test_events_come_by_time_then_phase_then_order_of_scheduling():
    queue = EventQueue()
    queue.add(2.0, Phase.TARGET, "late")
    queue.add(1.0, Phase.ARRIVAL, "arrival")
    queue.add(1.0, Phase.TARGET, "first")
    queue.add(1.0, Phase.TARGET, "second")
    queue.add(1.0, Phase.MACHINE, "machine")
    assert [queue.pop() for _ in range(5)] == ["machine", "first", "second", "arrival", "late"]


def test_times_count_before_phases_however_near_they_are():
    queue = EventQueue()
    queue.add(10.0000005, Phase.TARGET, "target")
    queue.add(10.0, Phase.ARRIVAL, "arrival")
    assert [queue.pop() for _ in range(2)] == ["arrival", "target"]


def test_an_empty_queue_has_no_next_event():
    assert math.isinf(EventQueue().next_s())


def test_names_come_out_least_first_and_once():
    names = InTurns()
    for name in ("b", "c", "a", "b"):
        names.add(name)
    assert [names.pop() for _ in range(3)] == ["a", "b", "c"]
    assert not names


def test_names_put_in_during_a_turn_wait_for_the_next():
    names = InTurns()
    for name in ("b", "c", "d"):
        names.add(name)
    assert names.pop() == "b"
    for name in ("b", "d", "a"):
        names.add(name)
    assert [names.pop() for _ in range(4)] == ["c", "d", "a", "b"]
    assert not names
