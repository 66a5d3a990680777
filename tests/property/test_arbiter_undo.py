"""The arbiter after writes that failed, and after a restart: it goes on as one that never met with either."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rm_plugin.arbiter.core import Arbiter, LeasePolicy
from rm_plugin.arbiter.lease_table import LeaseTable
from rm_plugin.arbiter.round_values import Decision, RoundSettings, RoundSnapshot
from rm_plugin.arbiter.rounds import RoundResult
from themis.bids import PlacedGang
from themis.choices import LeaseEnds
from themis.cluster import Allocation, Cluster, GpuId, Level, Machine
from themis.values import Value

CLUSTER = Cluster(
    name="c",
    machines=(
        Machine(machine_id="m0", rack_id="r", slots=(2, 2)),
        Machine(machine_id="m1", rack_id="r", slots=(2,)),
    ),
)
APPS = ("a", "b", "c")
MACHINES = ("m0", "m1")
# A lead and a grace that matter in steps of some seconds.
LEASES = [LeasePolicy(duration_s=60.0, checkpoint_lead_s=10.0, grace_s=20.0, ends=ends) for ends in LeaseEnds]


class Noted(Value, frozen=True):
    """Something that a policy remembers."""

    rounds: int


class Played:
    """An arbiter, and what it told: whatever a caller stores, sends or decides on."""

    def __init__(self, leases, table=None):
        self.arbiter = Arbiter(CLUSTER, leases, RoundSettings(), seed=7, grid_origin_s=0.0, table=table)
        self.now_s = 0.0

    def play(self, step):
        kind, *details = step
        return told(getattr(self, kind)(*details))

    def state(self):
        """What it answers without a change."""
        one = self.arbiter
        one.validate()
        attained = {app: one.attained_gpu_s(app, self.now_s) for app in APPS}
        leases = [one.table.of_app(app) for app in APPS]
        return attained, leases, one.next_lease_round_s(), one.overdue_apps(self.now_s), one.policy_memory

    # ---- steps that a failed write takes back ----

    def frame(self):
        """A round that ends before its decision."""
        return self.arbiter.begin_round(self.now_s)

    def round(self, wishes):
        """Every wish that still fits is granted."""
        snapshot, changes = self.arbiter.begin_round(self.now_s)
        left = {each.machine_id: each.free for each in snapshot.machines}
        grants = {}
        for app, machine, gpus in wishes:
            if any(each.app_id == app and not each.silent for each in snapshot.apps) and left[machine] >= gpus:
                left[machine] -= gpus
                gang = PlacedGang(gpus=Allocation.of({machine: gpus}), level=Level.MACHINE)
                grants[app] = (*grants.get(app, ()), gang)
        decision = Decision(auction=grants, memory=Noted(snapshot.round_id))
        settled = self.arbiter.settle(RoundResult(snapshot=snapshot, decision=decision), now_s=self.now_s)
        return snapshot, changes, settled

    def release(self, app, number):
        leases = self.arbiter.table.of_app(app)[:number]
        return self.arbiter.release([lease.lease_id for lease in leases], now_s=self.now_s, reason="returned")

    def revoke_overdue(self):
        late = [lease.lease_id for lease in self.arbiter.overdue(self.now_s)]
        return self.arbiter.revoke(late, now_s=self.now_s, reason="late")

    def lose(self, machine):
        return self.arbiter.machine_lost(machine, now_s=self.now_s, reason="gone")

    # ---- others ----

    def wait(self, seconds):
        self.now_s += seconds

    def silence(self, app, silent):
        self.arbiter.set_silent(app, silent)

    def starting(self, app, seconds):
        self.arbiter.set_starting(app, self.now_s + seconds)

    def heard_of(self, app):
        self.arbiter.heard_of([app])

    def close(self, gpus):
        self.arbiter.close_gpus(gpus)

    def back(self, machine):
        self.arbiter.machine_back(machine)

    def come_or_end(self, app):
        if app in self.arbiter.active_apps:
            return self.arbiter.end_app(app, now_s=self.now_s, reason="ended")
        return self.arbiter.add_app(app, now_s=self.now_s)


def told(answer):
    """An answer without the order of leases, which says nothing."""
    if isinstance(answer, RoundSnapshot):
        apps = [replace(app, granted_at_s=tuple(sorted(app.granted_at_s))) for app in answer.apps]
        return replace(answer, apps=tuple(apps))
    if isinstance(answer, tuple):
        return tuple(told(each) for each in answer)
    return sorted(answer, key=lambda change: change.lease.lease_id) if answer else None


APP, MACHINE = st.sampled_from(APPS), st.sampled_from(MACHINES)
WISHES = st.lists(st.tuples(APP, MACHINE, st.integers(1, 3)), max_size=4)
RECORDED = st.one_of(
    st.tuples(st.just("round"), WISHES),
    st.just(("frame",)),
    st.tuples(st.just("release"), APP, st.integers(1, 3)),
    st.just(("revoke_overdue",)),
    st.tuples(st.just("lose"), MACHINE),
)
GPUS = st.sampled_from([(), (GpuId("m0", 0),), (GpuId("m1", 0), GpuId("m1", 1))])
OTHERS = st.one_of(
    st.tuples(st.just("wait"), st.sampled_from([1.0, 10.0, 25.0, 50.0])),
    st.tuples(st.just("silence"), APP, st.booleans()),
    st.tuples(st.just("starting"), APP, st.sampled_from([30.0, 90.0])),
    st.tuples(st.just("heard_of"), APP),
    st.tuples(st.just("close"), GPUS),
    st.tuples(st.just("back"), MACHINE),
    st.tuples(st.just("come_or_end"), APP),
)
BEGIN = (
    ("come_or_end", "a"),
    ("come_or_end", "b"),
    ("round", [("a", "m0", 2), ("b", "m1", 1)]),
    # The next round is for the end of these leases, and prolongs one of an app that does not answer.
    ("wait", 50.0),
    ("silence", "b", True),
)


@given(
    leases=st.sampled_from(LEASES),
    steps=st.lists(st.tuples(st.lists(RECORDED, max_size=3), st.one_of(RECORDED, OTHERS)), max_size=12),
)
def test_a_change_that_could_not_be_written_leaves_no_trace(leases, steps):
    one, unlucky = Played(leases), Played(leases)
    for failed, step in (*(([], step) for step in BEGIN), *steps):
        unlucky.arbiter.begin()
        for undone in failed:
            unlucky.play(undone)
        unlucky.arbiter.undo()
        assert unlucky.play(step) == one.play(step)
        assert unlucky.state() == one.state()
    assert unlucky.play(("frame",)) == one.play(("frame",))


@given(leases=st.sampled_from(LEASES), steps=st.lists(st.one_of(RECORDED, OTHERS), max_size=12))
def test_a_snapshot_tells_what_a_restarted_arbiter_tells(leases, steps):
    """Standings are kept from round to round, and only what changed is made again."""
    one = Played(leases)
    for step in (*BEGIN, *steps):
        one.play(step)
    snapshot, _ = one.play(("frame",))
    table = one.arbiter.table
    live = [lease for app in APPS for lease in table.of_app(app)]
    again = Played(leases, LeaseTable(CLUSTER, live, next_lease_id=1_000, lost=table.lost))
    again.arbiter.close_gpus(table.closed)
    for app in snapshot.apps:
        again.arbiter.add_app(app.app_id, now_s=app.submitted_at_s, attained_gpu_s=app.ended_gpu_s)
        again.arbiter.set_silent(app.app_id, app.silent)
    again.now_s = one.now_s
    restarted, changes = again.play(("frame",))
    if not changes:
        assert restarted.apps == snapshot.apps
        assert restarted.machines == snapshot.machines
