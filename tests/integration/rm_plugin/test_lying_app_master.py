"""A malicious app master on the wire: for each rule, the liar gains nothing and others lose nothing."""

from __future__ import annotations

import asyncio

from liar import Stage, spec_of, stage

from themis.wire import themis_pb2 as pb


def play(tmp_path, scenario, **changes):
    async def whole():
        async with stage(tmp_path, **changes) as on:
            return await scenario(on)

    return asyncio.run(asyncio.wait_for(whole(), 60))


def report_with(**values):
    """A lie that changes fields of every report, and of every demand in it by `demands__`."""

    def lie(_master, message):
        if message.WhichOneof("body") == "rho":
            for name, value in values.items():
                if name.startswith("demands__"):
                    for demand in message.rho.demands:
                        setattr(demand, name.removeprefix("demands__"), value)
                else:
                    setattr(message.rho, name, value)
        return message

    return lie


def shares(tmp_path, lie, policy, seconds=4.0, jobs=8):
    """GPU time of two equal apps of which each could use all GPUs, the second one with the lie; and its cuts."""

    async def scenario(on: Stage):
        honest = await on.started(spec_of("honest", jobs=jobs))
        liar = await on.started(spec_of("liar", jobs=jobs), *([lie] if lie else []))
        before = on.gpu_s(honest), on.gpu_s(liar)
        await asyncio.sleep(seconds)
        return on.gpu_s(honest) - before[0], on.gpu_s(liar) - before[1], on.cut(liar), on.cut(honest)

    return play(tmp_path, scenario, policy=policy)


# ---- demand ---------------------------------------------------------------------------------------------------------


def test_an_app_of_one_gpu_that_always_demands_one_more_has_one(tmp_path):
    def hungry(_master, message):
        if message.WhichOneof("body") == "rho":
            del message.rho.demands[1:]
            if not message.rho.demands:
                message.rho.demands.add(
                    job_id="j0", min_gpus=1, max_gpus=1, unit_gpus=1, work_left_gpu_s=1000.0,
                    slowdown=pb.Slowdown(slot=1, machine=1, rack=1, cluster=1),
                )  # fmt: skip
        return message

    async def scenario(on: Stage):
        liar = await on.started(spec_of("liar"), hungry)
        for _ in range(12):
            on.manager.rounds.trigger("test")
            await asyncio.sleep(0.05)
        other = await on.started(spec_of("other", jobs=7))
        await asyncio.sleep(0.5)
        assert liar.most_gpus == 1
        assert other.most_gpus == 7

    play(tmp_path, scenario, policy="srtf", lease={"duration_s": 60, "checkpoint_lead_s": 0.1, "grace_s": 0.5})


def test_a_job_that_is_listed_twice_demands_once(tmp_path):
    def twice(_master, message):
        if message.WhichOneof("body") == "rho" and message.rho.demands:
            demands = list(message.rho.demands)
            del message.rho.demands[:]
            message.rho.demands.extend([demands[0]] * 2)
        return message

    async def scenario(on: Stage):
        liar = await on.started(spec_of("liar", jobs=2), twice)
        await asyncio.sleep(0.5)
        assert on.cut(liar) > 0
        # One of its two jobs, in a round; the other was not demanded for.
        assert liar.most_gpus <= 2

    play(tmp_path, scenario, policy="srtf")


def test_unmet_gpus_of_a_heartbeat_are_those_of_the_specification(tmp_path):
    async def scenario(on: Stage):
        liar = await on.started(spec_of("liar"))
        liar.send(heartbeat=pb.Heartbeat(unmet_gpus=64))
        await asyncio.sleep(0.2)
        assert on.manager.entries.get(liar.app_id).heartbeat.unmet_gpus == 1

    play(tmp_path, scenario)


# ---- rho, work left, cost of a restart ------------------------------------------------------------------------------


def test_a_false_rho_gains_no_gpu_time(tmp_path):
    honest, truth, cut, _ = shares(tmp_path / "true", None, "worst_rho_first")
    assert not cut
    other, lying, cut, false_cut = shares(tmp_path / "lie", report_with(rho=1e9, t_shared_s=1e12), "worst_rho_first")
    assert cut
    assert not false_cut
    share_true, share_lying = truth / (truth + honest), lying / (lying + other)
    assert share_lying < 0.95, (share_true, share_lying)


def test_a_false_cost_of_a_restart_presses_no_app_forward(tmp_path):
    _, _, cut, _ = shares(tmp_path / "lie", report_with(restart_s=1e9), "fair_finish", seconds=1.0)
    assert cut


# ---- bids -----------------------------------------------------------------------------------------------------------


def test_rows_of_any_value_are_cut_to_what_the_report_allows(tmp_path):
    def dear(_master, message):
        if message.WhichOneof("body") == "bid":
            for row in message.bid.rows:
                row.value = 1e12
            message.bid.empty_value = 1e-12
        return message

    async def scenario(on: Stage):
        honest = await on.started(spec_of("honest", jobs=8))
        liar = await on.started(spec_of("liar", jobs=8), dear)
        await asyncio.sleep(3.0)
        assert on.cut(liar) > 0
        assert on.cut(honest) == 0
        assert on.gpu_s(honest) > 0.25 * on.gpu_s(liar)

    play(tmp_path, scenario, policy="themis", auction={"keep_markets": 0, "f": 0.0})


def test_a_bid_of_too_many_rows_is_refused(tmp_path):
    def long(_master, message):
        if message.WhichOneof("body") == "bid" and message.bid.rows:
            message.bid.rows.extend([message.bid.rows[0]] * 2000)
        return message

    async def scenario(on: Stage):
        liar = await on.started(spec_of("liar", jobs=8), long)
        await asyncio.sleep(0.5)
        assert on.manager.entries.get(liar.app_id).refused_messages > 0

    play(tmp_path, scenario, policy="themis")
