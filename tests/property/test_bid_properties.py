"""Bids of random apps: sound, feasible, and without a row that another makes useless."""

from agent_cases import (
    CRUDE_SLOWDOWN,
    FLAT,
    STRICT,
    app_of,
    cluster_of,
    cluster_view_of,
    held,
    jobs_of,
    offer_of,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from am.agent.bids.bidding import ROW_CAP, make_bid
from am.agent.bids.reports import make_report
from am.agent.model.fairness import Valuer
from am.agent.model.finish_time import finish_time_s
from themis.apps import JobShape
from themis.cluster import Allocation, Level

CLUSTER = cluster_of((2, 2), (2, 2), (2,), (2,), (1,), racks=("r0", "r1"))


@st.composite
def apps(draw):
    """An app on CLUSTER that holds some gangs, of which some are renewable."""
    least, unit = draw(st.integers(1, 2)), draw(st.sampled_from([1, 1, 2]))
    shape = JobShape(tasks=least + draw(st.integers(0, 3)), min_tasks=least, gpus_per_task=unit)
    slowdown = draw(st.sampled_from([FLAT, CRUDE_SLOWDOWN, STRICT]))
    works = draw(st.lists(st.integers(10, 5000), min_size=1, max_size=6))
    free = dict.fromkeys(CLUSTER.gpu_ids())
    gangs = []
    for place in range(draw(st.integers(0, len(works)))):
        machine = draw(st.sampled_from(CLUSTER.machines))
        mine = [gpu for gpu in free if gpu.machine_id == machine.machine_id][: shape.demand_max_gpus]
        mine = mine[: shape.usable_gpus(len(mine))]
        for gpu in mine:
            del free[gpu]
        if mine:
            counts = {machine.machine_id: len(mine)}
            gangs.append(held(f"j{place}", counts, CLUSTER.level_of_gpus(mine), up=draw(st.booleans()) or None))
    return app_of(
        jobs_of(works, shape, slowdown),
        held=tuple(gangs),
        elapsed_s=float(draw(st.integers(0, 1000))),
        restart_s=draw(st.sampled_from([0.0, 8.0, 60.0])),
    )


CLUSTER_VIEW = cluster_view_of(CLUSTER, active_apps=3, lease_s=200.0)


def offer_to(app):
    """Everything that the app does not keep."""
    kept = sum((gang.gpus for gang in app.kept), Allocation()).by_machine()
    slots = {}
    for machine in CLUSTER.machines:
        gone, left = kept.get(machine.machine_id, 0), []
        for size in machine.slots:
            taken = min(gone, size)
            gone -= taken
            left.append(size - taken)
        slots[machine.machine_id] = tuple(left)
    return offer_of(slots)


def gangs_of(row):
    return sorted(
        ((gang.gpus, gang.within) for gang in row.gangs for _ in range(gang.count)),
        key=lambda gang: (-gang[0], gang[1]),
    )


def embeds(easy, hard):
    """True when each gang of `easy` can take the place of one of `hard`, by trying every assignment."""
    if not easy:
        return True
    gpus, within = easy[0]
    return any(
        size >= gpus and level <= within and embeds(easy[1:], hard[:place] + hard[place + 1 :])
        for place, (size, level) in enumerate(hard)
    )


@settings(max_examples=60)
@given(apps())
def test_every_row_is_worth_more_than_none_and_can_be_had(app):
    offer = offer_to(app)
    bid = make_bid(app, offer, CLUSTER_VIEW)
    largest = max((count for _, count in offer.free), default=0)
    slot = max(count for counts in offer.slots.values() for count in counts)
    assert bid.empty_value > 0
    # A gang of a row may be what a kept gang grows by.
    kept_gpus = {0, *(gang.gpus.gpus for gang in app.kept)}
    shape = app.median_job.shape
    for row in bid.rows:
        assert row.value > bid.empty_value
        assert row.gpus <= offer.free.gpus
        assert row.pinned.within(offer.free)
        for gang in row.gangs:
            assert gang.unit_gpus == shape.gpus_per_task
            assert any(shape.usable_gpus(kept + gang.gpus) == kept + gang.gpus for kept in kept_gpus)
            assert gang.gpus <= {Level.SLOT: slot, Level.MACHINE: largest}.get(gang.within, offer.free.gpus)
            assert gang.gpus > 1 or gang.within is Level.CLUSTER


@settings(max_examples=60)
@given(apps())
def test_no_row_is_made_useless_by_another(app):
    rows = make_bid(app, offer_to(app), CLUSTER_VIEW).rows
    assert len(rows) <= ROW_CAP
    for place, row in enumerate(rows):
        for other in rows[:place] + rows[place + 1 :]:
            if other.pinned == row.pinned and other.value >= row.value:
                assert not embeds(gangs_of(other), gangs_of(row)), (other, row)


@settings(max_examples=60)
@given(apps())
def test_more_gangs_of_the_same_kind_are_worth_more(app):
    """Monotone: of two rows of the same pins, the one that holds all that the other asks for is worth more."""
    rows = make_bid(app, offer_to(app), CLUSTER_VIEW).rows
    for row in rows:
        for other in rows:
            if row is not other and other.pinned == row.pinned and embeds(gangs_of(row), gangs_of(other)):
                assert other.value > row.value


@given(apps())
def test_staying_is_worth_at_least_as_much_as_the_same_gangs_fresh(app):
    bid = make_bid(app, offer_to(app), CLUSTER_VIEW)
    valuer = Valuer.of(app, CLUSTER_VIEW)
    stays = app.renewable
    everything = sum((gang.renewable_gpus for gang in stays), Allocation())
    holds = [gang.at for gang in (*app.kept, *stays)]
    value = valuer.value(finish_time_s(app, holds, CLUSTER_VIEW))
    moved = valuer.value(finish_time_s(app, holds, CLUSTER_VIEW), app.restart_s)
    assert value >= moved
    if stays and value > bid.empty_value:
        best = max(row.value for row in bid.rows if row.pinned == everything and not row.gangs)
        assert best == value


@given(apps())
def test_bids_and_reports_depend_on_nothing_but_the_arguments(app):
    offer = offer_to(app)
    assert make_bid(app, offer, CLUSTER_VIEW) == make_bid(app, offer, CLUSTER_VIEW)
    turned = app_of(
        app.jobs[::-1],
        held=app.held[::-1],
        elapsed_s=app.elapsed_s,
        restart_s=app.restart_s,
        reference=app.median_job,
    )
    assert [row.value for row in make_bid(turned, offer, CLUSTER_VIEW).rows] == [
        row.value for row in make_bid(app, offer, CLUSTER_VIEW).rows
    ]
    report = make_report(app, CLUSTER_VIEW, 1)
    assert report.rho == report.t_shared_s / report.t_ideal_s
    assert len({demand.job_id for demand in report.demands}) == len(report.demands)
    assert report.demand_gpus + sum(gang.gpus.gpus for gang in app.kept) <= app.demand_max_gpus
