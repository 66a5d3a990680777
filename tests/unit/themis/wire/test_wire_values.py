"""Every value comes back from its message. Impossible values are refused, unknown fields are skipped."""

import math

import pytest
from hypothesis import given, settings
from strategies import ALLOCATIONS, APPS, BIDS, CLUSTERS, LEASES, OFFERS, REPORTS, SCALARS

from themis.apps import AppSpec, JobSpec, ProgramSpec, TunerSpec
from themis.bids import Bid, BidRow, GangRequest
from themis.cluster import Level
from themis.errors import InputError
from themis.wire import themis_pb2 as pb
from themis.wire.values import (
    allocation_from_message,
    allocation_to_message,
    app_from_message,
    app_to_message,
    bid_from_message,
    bid_to_message,
    cluster_from_message,
    cluster_to_message,
    lease_from_message,
    lease_to_message,
    leases_to_message,
    offer_from_message,
    offer_to_message,
    report_from_message,
    report_to_message,
    scalar_from_message,
    scalar_to_message,
    slowdown_from_message,
)


def over_the_wire(message):
    return type(message).FromString(message.SerializeToString())


class TestRoundTrips:
    @settings(max_examples=200)
    @given(SCALARS)
    def test_scalars_keep_value_and_type(self, value):
        back = scalar_from_message(over_the_wire(scalar_to_message(value)))
        assert (type(back), back) == (type(value), value)

    def test_a_diverged_hyper_parameter_stays_one(self):
        assert math.isnan(scalar_from_message(over_the_wire(scalar_to_message(math.nan))))

    @given(APPS)
    def test_apps(self, app):
        assert app_from_message(over_the_wire(app_to_message(app))) == app

    @given(ALLOCATIONS)
    def test_allocations(self, allocation):
        assert allocation_from_message(over_the_wire(allocation_to_message(allocation))) == allocation

    @given(CLUSTERS)
    def test_clusters_in_their_order(self, cluster):
        back = cluster_from_message(over_the_wire(cluster_to_message(cluster)))
        assert back == cluster
        assert list(back.devices) == list(cluster.devices)

    @given(LEASES)
    def test_leases_but_for_the_time_of_the_grant(self, lease):
        assert lease_from_message(over_the_wire(lease_to_message(lease)), "app") == lease

    @given(BIDS)
    def test_bids(self, bid):
        message = over_the_wire(bid_to_message(bid, 12.5))
        assert bid_from_message(message, bid.app_id) == bid
        assert message.prepare_ms == 12.5

    @given(REPORTS)
    def test_reports(self, report):
        assert report_from_message(over_the_wire(report_to_message(report)), report.app_id) == report

    @given(OFFERS)
    def test_offers(self, offer):
        back = offer_from_message(over_the_wire(offer_to_message(offer)))
        assert back == offer
        assert list(back.slots) == list(offer.slots)

    def test_every_lease_of_an_app_is_in_its_update(self):
        assert over_the_wire(leases_to_message(7, ())) == pb.LeaseUpdate(version=7)


GOOD_DEMAND = {"job_id": "j", "min_gpus": 1, "max_gpus": 2, "unit_gpus": 1}
FLAT = pb.Slowdown(slot=1, machine=1, rack=1, cluster=1)


def report(**demand):
    fields = {"slowdown": FLAT, **GOOD_DEMAND, **demand}
    return pb.RhoReport(round_id=1, rho=1.0, demands=[pb.GangDemand(**fields)])


class TestMalformed:
    """ValueError is what a session takes for a broken message; InputError is one."""

    @pytest.mark.parametrize(
        "message",
        [
            pb.AppSpec(),
            pb.AppSpec(program=pb.ProgramSpec(name="p")),
            pb.AppSpec(program=pb.ProgramSpec(name="p"), jobs=[pb.JobSpec(job_id="j", iterations_total=1)]),
            pb.AppSpec(
                program=pb.ProgramSpec(),
                jobs=[
                    pb.JobSpec(job_id="j", iterations_total=1, shape=pb.JobShape(tasks=1, min_tasks=1, gpus_per_task=1))
                ],
            ),
        ],
        ids=["empty", "no jobs", "no shape", "no program"],
    )
    def test_apps(self, message):
        with pytest.raises(ValueError, match="needs"):
            app_from_message(message)

    @pytest.mark.parametrize(
        "row",
        [
            pb.BidRow(),
            pb.BidRow(value=1.0),
            pb.BidRow(value=-1.0, gangs=[pb.Gang(gpus=1, count=1, unit_gpus=1)]),
            pb.BidRow(value=1.0, gangs=[pb.Gang(gpus=1, count=1)]),
            pb.BidRow(value=1.0, gangs=[pb.Gang(gpus=1, count=1, unit_gpus=1, within=4)]),
            pb.BidRow(value=1.0, gangs=[pb.Gang(gpus=1, count=1, unit_gpus=1, within=-1)]),
            pb.BidRow(value=1.0, pinned=pb.Allocation(counts=[pb.GpuCount(machine_id="m", gpus=-1)])),
            pb.BidRow(value=math.nan, gangs=[pb.Gang(gpus=1, count=1, unit_gpus=1)]),
        ],
    )
    def test_rows(self, row):
        with pytest.raises(ValueError):
            bid_from_message(pb.Bid(round_id=1, empty_value=0.5, rows=[row]), "a")

    def test_a_machine_counted_twice_is_refused(self):
        twice = pb.Allocation(counts=[pb.GpuCount(machine_id="m", gpus=gpus) for gpus in (1, 2)])
        with pytest.raises(InputError, match="twice"):
            allocation_from_message(twice)

    @pytest.mark.parametrize(
        "demand",
        [
            {"unit_gpus": 0},
            {"min_gpus": 0},
            {"max_gpus": 0},
            {"work_left_gpu_s": math.nan},
            {"slowdown": None},
            {"forecast": pb.LossForecast()},
            {"forecast": pb.LossForecast(drop=math.nan, scale=1, power=1, serial_iteration_s=1)},
            {"forecast": pb.LossForecast(drop=-1, scale=1, power=1, serial_iteration_s=1)},
            {"forecast": pb.LossForecast(scale=1, power=1, serial_iteration_s=1, iteration=-1)},
        ],
    )
    def test_reports(self, demand):
        with pytest.raises(InputError):
            report_from_message(report(**demand), "a")

    def test_a_report_whose_rho_cannot_be_ordered(self):
        with pytest.raises(InputError):
            report_from_message(pb.RhoReport(round_id=1, rho=math.nan), "a")

    @pytest.mark.parametrize(
        "fields",
        [
            {"restart_s": math.nan},
            {"restart_s": -1.0},
            {"phases_left": [pb.PhaseLeft()]},
            {"phases_left": [pb.PhaseLeft(jobs=1, gang_gpus=1, work_gpu_s=math.nan)]},
            {"phases_left": [pb.PhaseLeft(jobs=1, gang_gpus=1, longest_gpu_s=-1.0)]},
        ],
    )
    def test_reports_with_work_that_cannot_be(self, fields):
        with pytest.raises(InputError):
            report_from_message(pb.RhoReport(round_id=1, rho=1.0, **fields), "a")

    def test_slowdowns_that_were_never_set(self):
        with pytest.raises(InputError):
            slowdown_from_message(pb.Slowdown())

    def test_an_unknown_state_or_kind(self):
        with pytest.raises(ValueError, match="BORROWED"):
            lease_from_message(pb.Lease(lease_id=1, machine_id="m", state="BORROWED"), "a")
        with pytest.raises(ValueError, match="tpu"):
            cluster_from_message(pb.Cluster(devices=[pb.DeviceType(name="d", kind="tpu")]))

    def test_a_cluster_whose_machines_share_an_id(self):
        machine = pb.Machine(machine_id="m", rack_id="r", slots=[1])
        with pytest.raises(InputError, match="share one id"):
            cluster_from_message(pb.Cluster(machines=[machine, machine]))


def test_an_integer_beyond_the_wires_is_a_value_error():
    job = JobSpec(job_id="j", hyper_parameters={"n": 2**63}, iterations_total=1)
    app = AppSpec(name="a", tuner=TunerSpec(name="single"), program=ProgramSpec(name="p"), jobs=(job,))
    with pytest.raises(ValueError, match="range"):
        app_to_message(app)


def test_unknown_fields_of_a_newer_peer_are_tolerated():
    bid = Bid(app_id="a", round_id=3, empty_value=0.5, rows=(BidRow(value=1.0, gangs=(GangRequest(2, Level.RACK),)),))
    unknown_text = b"\xfa\x06\x05later"  # field 111, length-delimited
    unknown_number = b"\xf0\x06\x01"  # field 110, varint
    data = bid_to_message(bid, 0.0).SerializeToString() + unknown_text + unknown_number
    assert bid_from_message(pb.Bid.FromString(data), "a") == bid


def test_an_unset_scalar_is_an_empty_text():
    assert scalar_from_message(pb.Scalar()) == ""
