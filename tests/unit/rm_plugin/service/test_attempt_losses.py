"""Lost attempts of an app: which count as failures, and how long the next attempt waits."""

import msgspec
import pytest

from rm_plugin.service.attempt_losses import FIRST_DELAY_S, LONGEST_DELAY_S, AttemptLosses


def lost(losses, attempt, now_s, *, taken=(), all_excused=False, done=0):
    return losses.after(attempt, now_s, taken=taken, all_excused=all_excused, done=done, window_s=3600.0)


def test_attempts_that_the_site_took_are_excused():
    losses = lost(AttemptLosses(), 4, 100.0, taken={1, 3})
    assert (losses.failed_at_s, losses.excused_attempts, losses.counted) == ((100.0, 100.0), 2, 4)


def test_attempts_lost_to_the_engine_are_all_excused():
    losses = lost(AttemptLosses(failed_at_s=(90.0,)), 3, 100.0, all_excused=True)
    assert (losses.failed_at_s, losses.excused_attempts) == ((90.0,), 2)


def test_failures_are_excused_once_they_leave_the_window():
    losses = lost(AttemptLosses(), 1, 100.0)
    assert lost(losses, 2, 3699.0).failed_at_s == (100.0, 3699.0)
    later = lost(losses, 2, 3700.0)
    assert (later.failed_at_s, later.excused_attempts) == ((3700.0,), 1)


def test_loss_that_is_counted_changes_nothing():
    losses = lost(AttemptLosses(), 2, 100.0)
    assert lost(losses, 2, 200.0) == losses
    # But what has left the window is excused.
    later = lost(losses, 2, 3700.0)
    assert (later.failed_at_s, later.excused_attempts, later.counted) == ((), 2, 2)
    assert losses.excused_up_to(2) == losses.excused_up_to(1) == losses


def test_excused_attempts_leave_the_pause_as_it_is():
    losses = AttemptLosses(failed_at_s=(1.0,), fruitless_at_s=(1.0, 2.0, 3.0), done_at_loss=7)
    excused = losses.excused_up_to(5)
    assert (excused.excused_attempts, excused.counted) == (4, 5)
    assert (excused.delay_s, excused.next_at_s) == (losses.delay_s, losses.next_at_s) == (10.0, 13.0)


def test_pauses_double_up_to_the_longest():
    losses, delays_s = AttemptLosses(), []
    for attempt in range(1, 11):
        losses = lost(losses, attempt, 10.0 * attempt, taken={attempt})
        delays_s.append(losses.delay_s)
    assert delays_s == [0, FIRST_DELAY_S, 10, 20, 40, 80, 160, LONGEST_DELAY_S, LONGEST_DELAY_S, LONGEST_DELAY_S]
    assert losses.next_at_s == 100.0 + LONGEST_DELAY_S


def test_row_begins_again_with_an_iteration_beyond_all_before():
    losses = lost(lost(AttemptLosses(), 1, 1.0, done=4), 2, 2.0, done=4)
    assert losses.fruitless_at_s == (1.0, 2.0)
    assert lost(losses, 3, 3.0, done=3).fruitless_at_s == (1.0, 2.0, 3.0)
    assert lost(losses, 3, 3.0, done=3).done_at_loss == 4
    assert lost(losses, 3, 3.0, done=5).fruitless_at_s == (3.0,)


def test_next_attempt_of_an_app_without_losses_waits_for_nothing():
    assert (AttemptLosses().delay_s, AttemptLosses().next_at_s) == (0.0, 0.0)


def test_store_gives_back_what_it_got():
    losses = lost(lost(AttemptLosses(), 1, 1.0), 2, 2.0, done=4)
    stored = msgspec.json.decode(msgspec.json.encode({**losses.stored(), "gpu_time_s": 3.0}))
    assert AttemptLosses.restored(stored) == losses


@pytest.mark.parametrize("stored", [{}, {"failed_at_s": "yesterday"}, {"excused_attempts": None}])
def test_store_without_readable_losses_has_none(stored):
    assert AttemptLosses.restored(stored) == AttemptLosses()


def test_store_of_an_earlier_version_has_no_row():
    old = AttemptLosses.restored({"excused_attempts": 2, "failed_at_s": [1, 2.5]})
    assert old == AttemptLosses(excused_attempts=2, failed_at_s=(1.0, 2.5))
