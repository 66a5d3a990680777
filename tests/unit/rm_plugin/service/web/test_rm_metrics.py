"""The metrics of the ResourceManager, in Prometheus' text format."""

import re

import pytest
from web_cases import NOW_S, RmCase, busy, run, served

from themis.lifecycle import AppState


class TestMetrics:
    def test_samples(self):
        async def scenario():
            case = busy()
            record = case.recorder.record
            record("checkpoint", app_id="app-0001", detail={"job_id": "job-0", "seconds": 0.5})
            record("checkpoint", app_id="app-0001", detail={"job_id": "job-0", "seconds": 0.25})
            record("resize", app_id="app-0001", detail={"seconds": 2.0})
            record("checkpoint", app_id="app-0001", detail={"seconds": "soon"})
            async with served(case) as site:
                status, headers, text = await site.get("/metrics")
            assert status == 200
            assert headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
            samples = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
            expected = {
                'themis_apps{state="RUNNING"}': 2,
                'themis_apps{state="FAILED"}': 1,
                'themis_gpus{state="leased"}': 5,
                'themis_gpus{state="free"}': 5,
                'themis_leases{state="GRANTED"}': 5,
                'themis_rounds_total{outcome="granted"}': 2,
                "themis_unmet_gpus": 4,
                'themis_newest_round_seconds{part="whole"}': 0.3,
                'themis_newest_round_seconds{part="auction"}': 0.005,
                "themis_checkpoint_seconds_sum": 0.75,
                "themis_checkpoint_seconds_count": 2,
                "themis_resize_seconds_count": 1,
                "themis_round_seconds_count": 2,
            }
            rhos = [case.manager.estimates.rho(entry) for entry in case.entries.active()]
            assert float(samples["themis_rho_max"]) == pytest.approx(max(rhos), rel=1e-2)
            assert {name: float(samples[name]) for name in expected} == pytest.approx(expected)

        run(scenario)

    def test_completion_of_finished_apps_has_quantiles_and_the_mean_of_the_longest(self):
        async def scenario():
            case = RmCase(((1,),))
            for taken_s in (30.0, 10.0, 20.0):
                case.app(f"took-{taken_s:g}", state=AppState.FINISHED, finished_at_s=NOW_S + taken_s)
            case.app("failed", state=AppState.FAILED, finished_at_s=NOW_S + 500.0)
            async with served(case) as site:
                text = await site.text("/metrics")
            samples = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
            expected = {
                'themis_app_completion_seconds{quantile="0.5"}': 20.0,
                'themis_app_completion_seconds{quantile="0.99"}': 30.0,
                "themis_app_completion_seconds_sum": 60.0,
                "themis_app_completion_seconds_count": 3,
                "themis_app_completion_tail_seconds": 30.0,
            }
            assert {name: float(samples[name]) for name in expected} == expected

        run(scenario)

    def test_every_metric_has_its_help_and_type_once(self):
        async def scenario():
            async with served(busy()) as site:
                text = await site.text("/metrics")
            lines = text.splitlines()
            names = {re.split(r"[{ ]", line)[0] for line in lines if not line.startswith("#")}
            helped = [line.split()[2] for line in lines if line.startswith("# HELP")]
            typed = {line.split()[2]: line.split()[3] for line in lines if line.startswith("# TYPE")}
            assert len(helped) == len(set(helped))
            assert set(helped) == set(typed)
            assert {re.sub(r"_(sum|count)$", "", name) if name not in typed else name for name in names} == set(typed)

        run(scenario)
