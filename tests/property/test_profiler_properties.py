"""The profiler on any records and files: followers lose nothing, profiles stay sane. Any logs: test_profiler_fuzz."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st
from log_lines import parse_line

from am.profiler.follower import LogFollower
from am.profiler.iteration_time import IterationTime, Placement
from am.profiler.profile import JobProfile
from am.profiler.records import Begun, CheckpointSaved, Restored, StepLoss, StepsPerSecond
from am.profiler.slowdowns import measured_slowdown, serial_iteration_s
from themis.apps import CRUDE_SLOWDOWN, Slowdown
from themis.cluster import Level


@given(st.integers(0, 10**12), st.floats(allow_nan=False), st.floats(0.0, 1e6))
def test_loss_lines_read_back(step, loss, seconds):
    line = f"INFO:tensorflow:loss = {loss!r}, step = {step} ({seconds:.3f} sec)"
    assert parse_line(line) == StepLoss(step=step, loss=loss, seconds=round(seconds, 3))


@settings(max_examples=50)
@given(st.lists(st.binary(max_size=12).map(lambda data: data.replace(b"\0", b"\n").replace(b"\1", b"\r")), max_size=12))
def test_followers_give_every_line_once(tmp_path_factory, chunks):
    path = tmp_path_factory.mktemp("follow") / "log"
    follow = LogFollower(path)
    read = []
    for chunk in chunks:
        with path.open("ab") as file:
            file.write(chunk)
        read.append(follow.read())
    assert all(lines.endswith((b"\n", b"\r")) for lines in read if lines)
    rest = follow.finish()
    follow.close()
    whole = b"".join(chunks)
    assert b"".join(read) + rest == whole + (b"\n" if rest else b"")


FACTORS = st.lists(st.floats(1.0, 5.0), min_size=4, max_size=4).map(lambda values: Slowdown(*sorted(values)))
SECONDS = st.floats(1e-6, 1e5)
PLACEMENTS = st.builds(Placement, st.integers(1, 64), st.sampled_from(Level))
PACES = st.dictionaries(
    PLACEMENTS,
    st.builds(lambda s, count: IterationTime(iteration_s=s, spread_s=0.0, count=count), SECONDS, st.integers(1, 50)),
    max_size=8,
)


@given(PACES, FACTORS)
def test_slowdowns_are_always_valid(paces, assumed):
    # The constructor refuses factors below 1 and ones that fall.
    slowdown = measured_slowdown(paces, assumed)
    serial = serial_iteration_s(paces, slowdown)
    assert (serial is None) == (not paces)
    assert serial is None or serial > 0.0


@given(FACTORS, st.floats(1e-3, 1e3), st.sets(PLACEMENTS, min_size=1, max_size=8), FACTORS)
def test_true_paces_give_the_truth_back(truth, serial, placements, assumed):
    paces = {
        at: IterationTime(iteration_s=serial * truth.at(at.level) / at.gpus, spread_s=0.0, count=10)
        for at in placements
    }
    slowdown = measured_slowdown(paces, assumed)
    seen = sorted({at.level for at in placements})
    base = assumed.at(seen[0]) / truth.at(seen[0])
    for level in seen:
        expected = max(1.0, truth.at(level) * base)
        assert abs(slowdown.at(level) - expected) <= 1e-9 * expected
    unseen = [level for level in Level if level not in seen]
    for level in unseen:
        if level < seen[0] and assumed.at(level) <= slowdown.at(seen[0]):
            assert slowdown.at(level) == assumed.at(level)


RECORDS = st.one_of(
    st.builds(
        StepLoss,
        step=st.integers(0, 10**6),
        loss=st.one_of(st.none(), st.floats()),
        seconds=st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True)),
    ),
    st.builds(StepsPerSecond, rate=st.floats()),
    st.builds(CheckpointSaved, iteration=st.integers(0, 10**6), seconds=st.floats(), bytes=st.integers(0, 10**9)),
    st.builds(Begun, incarnation=st.integers(1, 9)),
    st.builds(Restored, iteration=st.integers(0, 10**6), seconds=st.floats()),
    st.tuples(st.integers(1, 16), st.sampled_from(Level)),
)


@given(st.lists(RECORDS, max_size=60))
def test_profiles_stay_sane_on_any_records(records):
    profile = JobProfile()
    progress = [0]
    for record in records:
        if isinstance(record, tuple):
            profile.started(*record)
        else:
            profile.feed(record)
        progress.append(profile.iteration)
        profile.look(float(len(progress)))
        assert profile.iteration_s is None or profile.iteration_s > 0.0
        assert set(profile.levels_seen()) == {at.level for at, pace in profile.paces.items() if pace.is_reliable}
        assert isinstance(profile.slowdown(), Slowdown)
        for pace in profile.paces.values():
            assert pace.iteration_s > 0.0
            assert pace.spread_s >= 0.0
            assert 1 <= pace.count <= 50
    assert all(before <= after for before, after in itertools.pairwise(progress))


@given(st.lists(st.one_of(RECORDS, st.tuples(st.integers(1, 4), st.sampled_from(Level), st.sampled_from("ab")))))
def test_what_a_profile_keeps_of_its_paces_is_that_of_all_intervals(records):
    profile = JobProfile()
    for record in records:
        if isinstance(record, tuple):
            profile.started(*record)
        else:
            profile.feed(record)
        known = {at: intervals.pace for at, intervals in profile._intervals.items() if intervals.pace is not None}
        assert list(profile.paces.items()) == list(known.items())
        base = [each for each in known if each.device == next(iter(known)).device]
        slowdown = measured_slowdown({at: known[at] for at in base}, CRUDE_SLOWDOWN)
        assert profile.slowdown() == slowdown
        assert profile.serial_iteration_s == serial_iteration_s({at: known[at] for at in base}, slowdown)
        # As long as nothing new was measured, nothing is computed.
        assert profile.paces is profile.paces


def test_slowdown_without_paces_is_the_assumed_one():
    assert measured_slowdown({}, CRUDE_SLOWDOWN) == CRUDE_SLOWDOWN
