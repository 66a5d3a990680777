"""The GPU time of ended apps by user, which the arbiter keeps, equals a plain walk over all apps."""

import math
from random import Random

import pytest

from rm_plugin.arbiter.core import Arbiter, LeasePolicy
from rm_plugin.arbiter.round_values import RoundSettings
from themis.cluster import Cluster, Machine
from themis.queues import ONE_QUEUE, ROOT, AppOwner, Queue, Queues

CLUSTER = Cluster(name="one", machines=(Machine(machine_id="m0", rack_id="r0", slots=(4,)),))
TWO_QUEUES = Queues(queues={ROOT: Queue(name=ROOT), "default": Queue(name="default", parent=ROOT)})
OWNERS = tuple(AppOwner(user=user) for user in ("anna", "ben", ""))


class Walked:
    """An ended app counts as long as an older app of its user is active, when the user's apps are looked at."""

    def __init__(self):
        self.active = {}
        self.ended = {}

    def end(self, app_id):
        owner, arrived_s, gpu_s = self.active.pop(app_id)
        if owner.user:
            self.ended[app_id] = (owner, arrived_s, gpu_s)
            self.look(owner)

    def look(self, owner):
        oldest_s = min((arrived_s for its, arrived_s, _ in self.active.values() if its == owner), default=math.inf)
        self.ended = {app_id: each for app_id, each in self.ended.items() if each[0] != owner or each[1] >= oldest_s}

    def sums(self, queues):
        found = {}
        for owner, _, gpu_s in self.ended.values():
            found.setdefault(queues.tenant(owner), []).append(gpu_s)
        return {tenant: math.fsum(each) for tenant, each in found.items()}


@pytest.mark.parametrize("seed", range(20))
def test_time_of_ended_apps_equals_a_walk_over_all_apps(seed):
    rng, walked = Random(seed), Walked()
    arbiter = Arbiter(CLUSTER, LeasePolicy(), RoundSettings(), seed=1, grid_origin_s=0.0)
    for now in range(60):
        now_s = float(now)
        if rng.random() < 0.6:
            # A resumed app arrived earlier than it is added, and may have ended before.
            app_id = rng.choice([*(each for each in walked.ended), f"a{now}"])
            owner = walked.ended.pop(app_id)[0] if app_id in walked.ended else rng.choice(OWNERS)
            arrived_s, gpu_s = rng.uniform(0.0, now_s), rng.uniform(0.0, 9.0)
            arbiter.add_app(app_id, now_s=now_s, arrived_at_s=arrived_s, attained_gpu_s=gpu_s, owner=owner)
            walked.active[app_id] = owner, arrived_s, gpu_s
        elif walked.active:
            app_id = rng.choice(list(walked.active))
            arbiter.end_app(app_id, now_s=now_s, reason="a test")
            walked.end(app_id)
        if rng.random() < 0.1:
            arbiter.requeue(rng.choice([ONE_QUEUE, TWO_QUEUES]), now_s=now_s)
            for owner in OWNERS:
                walked.look(owner)
        snapshot, _ = arbiter.begin_round(now_s)
        found = {tenant: gpu_s for tenant, gpu_s in snapshot.ended_gpu_s.items() if gpu_s}
        assert found == walked.sums(arbiter.queues)
