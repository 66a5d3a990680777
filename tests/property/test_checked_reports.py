"""Checking only what changed of the reports of a round equals checking every report anew."""

import asyncio
from random import Random

import pytest
from hosted_cases import InlineHost, specs
from msgspec.structs import replace
from service_cases import ServiceCase

from rm_plugin.service import checked_reports
from rm_plugin.service.checked_reports import CheckedReports
from rm_plugin.service.claims import checked_content, checked_report, metered_gpu_s
from rm_plugin.service.store_memory import MemoryStore

SPECS = tuple(specs())


class Compared(CheckedReports):
    """Compares with a whole check of every report. Some apps lie about their times or their work."""

    lies = 0

    def check(self, snapshot, claims):
        claims = {app_id: self.claimed(app_id, claim) for app_id, claim in claims.items()}
        found = super().check(snapshot, claims)
        assert found == {
            app_id: checked_report(claim, self.facts_of(snapshot, app_id)) for app_id, claim in claims.items()
        }
        for app_id, (report, _) in found.items():
            assert self.used_gpu_s(app_id) == metered_gpu_s(self.facts_of(snapshot, app_id), report.demands)
        self.lies += sum(bool(cuts) for _, cuts in found.values())
        return found

    def claimed(self, app_id, claim):
        if app_id.endswith("3"):
            return replace(claim, rho=1e3 * claim.rho, t_shared_s=1e3 * claim.t_shared_s)
        if app_id.endswith("6"):
            return replace(claim, restart_s=1e9)
        return claim


@pytest.mark.parametrize("policy", ["themis", "fair_finish"])
@pytest.mark.parametrize("seed", range(3))
def test_reports_are_believed_as_if_each_was_checked_whole(tmp_path, monkeypatch, seed, policy):
    rng, checked, asked = Random(seed), [], 0

    def counted(claim, facts):
        checked.append(claim.app_id)
        return checked_content(claim, facts)

    monkeypatch.setattr(checked_reports, "checked_content", counted)

    async def scenario():
        nonlocal asked
        service = ServiceCase(
            MemoryStore(), folder=tmp_path, host=InlineHost(), policy=policy, app_masters="at_grant",
            report_deadline_s=5.0, bid_deadline_s=5.0,
        )  # fmt: skip
        compared = service.rounds._checked = Compared(
            service.entries,
            service.manager.settings.auction.bundle_rule,
            lambda: service.arbiter.gpus_available,
            service.manager.live_cluster.grantable_gpus,
        )
        for round_number in range(12):
            service.clock.advance_to(service.clock.now_s() + rng.choice([1.0, 90.0, 5000.0]))
            for _ in range(rng.randrange(4) if round_number else 30):
                await service.manager.submit(rng.choice(SPECS))
            if rng.random() < 0.3 and (living := service.entries.living()):
                await service.manager.kill(rng.choice(living).app_id, "a test")
            hosted = len(service.manager.hosted)
            await service.rounds._play(["test"])
            asked += hosted
            # Apps that won give their GPUs back, so that others can wait for them.
            leases = [lease.lease_id for lease in service.arbiter.table.live.values()]
            now_s = service.clock.now_s()
            await service.manager.changes.make(
                lambda change, ids=leases, at_s=now_s: change.leases(
                    service.arbiter.release(ids, now_s=at_s, reason="a test")
                )
            )
        await service.manager.hosted.close()
        return compared.lies

    assert asyncio.run(asyncio.wait_for(scenario(), 100))
    # Each is checked whole in its first round, and once more when its declared work is known.
    assert len(checked) < 0.8 * asked
