"""The indexes of `AppEntries` equal a plain walk over all apps, whatever happens to the apps."""

from copy import copy

from hypothesis import given, settings
from hypothesis import strategies as st
from service_cases import DECLARATION, app

from rm_plugin.service.app_pages import app_page, list_key
from rm_plugin.service.entries import AppEntries, AppEntry
from rm_plugin.service.fluid_fairness import FluidFairness
from themis.lifecycle import AppState
from themis.wire import themis_pb2 as pb

GPUS = 8
LIVING = (AppState.RUNNING, AppState.ACCEPTED)
ENDS = st.sampled_from([AppState.FINISHED, AppState.FAILED, AppState.KILLED])
STEPS = st.lists(
    st.one_of(
        st.just(("arrive",)),
        st.tuples(st.just("beat"), st.integers(0, 9), st.booleans()),
        st.tuples(st.just("end"), st.integers(0, 9), ENDS, st.booleans()),
        st.tuples(st.just("pause"), st.integers(0, 9)),
        st.tuples(st.just("archive"), st.integers(0, 9)),
        st.just(("restart",)),
    ),
    max_size=30,
)


def ended(entries: AppEntries) -> list[AppEntry]:
    return [entry for entry in entries if entry.ended]


def take(entries: AppEntries, step: tuple, now_s: float) -> AppEntries:
    kind, *arguments = step
    if kind == "arrive":
        name = entries.next_id()
        entries.add(AppEntry(app_id=name, spec=app(name), submitted_at_s=now_s, state=AppState.RUNNING))
    elif kind == "restart":
        return AppEntries(list(entries), archived=entries.archived, last_number=int(entries.next_id()[4:]) - 1)
    elif kind == "archive":
        entries.archive([entry.app_id for entry in ended(entries)[: arguments[0]]])
    elif living := entries.living():
        entry = living[arguments[0] % len(living)]
        if kind == "pause":
            entry.update(state=AppState.PAUSED if entry.is_active else AppState.ACCEPTED, paused_at_s=now_s)
        elif kind == "beat":
            entries.take_heartbeat(entry, pb.Heartbeat(declaration=DECLARATION if arguments[1] else None))
        else:
            finish = pb.Finish(state=arguments[1], declaration=DECLARATION) if arguments[2] else pb.Finish()
            entry.update(state=arguments[1], finished_at_s=now_s, finish=finish)
    return entries


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_active_apps_lists_and_lives_equal_a_walk_over_all_apps(steps):
    entries = AppEntries()
    fairness = FluidFairness(entries)
    for number, step in enumerate(steps):
        entries = take(entries, step, 10.0 * number)
        if step[0] == "restart":
            fairness = FluidFairness(entries)
        assert entries.living() == [entry for entry in entries if not entry.ended]
        assert entries.active() == [entry for entry in entries if entry.is_active]
        for states in ((), LIVING, (AppState.PAUSED, AppState.FINISHED)):
            some = sorted((entry for entry in entries if not states or entry.state in states), key=list_key)
            archived = sum(count for state, count in entries.archived.items() if not states or state in states)
            assert entries.count(states) == len(some) + archived
            assert list(entries.newest_first(states)) == some
            for place, last in enumerate(some, start=1):
                assert list(entries.newest_first(states, list_key(last))) == some[place:]
        assert app_page(entries.newest_first(), limit=3).entries == tuple(sorted(entries, key=list_key)[:3])
        assert fairness.lives(GPUS) == FluidFairness(AppEntries(list(map(copy, entries)))).lives(GPUS)
