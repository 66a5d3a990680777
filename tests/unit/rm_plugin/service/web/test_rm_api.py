"""The REST interface of the ResourceManager: documents, and errors as documents."""

import re

import pytest
from web_cases import NOW_S, Elements, busy, run, served

from themis.attempt_proof import hashed
from themis.cluster import GpuId


class TestApi:
    def test_the_cluster_counts_every_gpu_once(self):
        async def scenario():
            case = busy()
            case.arbiter.close_gpus([GpuId("m01", 3), GpuId("m00", 0)])
            case.arbiter.machine_lost("m10", now_s=NOW_S, reason="gone")
            async with served(case) as site:
                cluster = await site.json("/api/v1/cluster")
            parts = {name: cluster[f"gpus_{name}"] for name in ("leased", "free", "closed", "lost")}
            assert parts == {"leased": 5, "free": 2, "closed": 1, "lost": 2}
            assert sum(parts.values()) == cluster["gpus"] == 10
            machines = {each["machine_id"]: each for rack in cluster["racks"] for each in rack["machines"]}
            assert [rack["rack_id"] for rack in cluster["racks"]] == ["rack0", "rack1"]
            assert {name: each["state"] for name, each in machines.items()} == {
                "m00": "available",
                "m01": "available",
                "m10": "lost",
            }
            assert machines["m01"]["gpus_closed"] == [3]
            assert [lease["app_id"] for lease in machines["m01"]["leases"]] == ["app-0002"]
            assert cluster["devices"]["v100"]["emulated"] is True

        run(scenario)

    def test_a_machine_whose_gpus_are_all_closed_is_closed(self):
        async def scenario():
            case = busy()
            case.arbiter.close_gpus([GpuId("m10", 0), GpuId("m10", 1)])
            async with served(case) as site:
                cluster = await site.json("/api/v1/cluster")
            assert cluster["racks"][1]["machines"][0]["state"] == "closed"

        run(scenario)

    def test_apps_by_state(self):
        async def scenario():
            async with served(busy()) as site:
                everything = await site.json("/api/v1/apps")
                running = await site.json("/api/v1/apps?state=RUNNING")
                two = await site.json("/api/v1/apps?state=RUNNING&state=FAILED&limit=2")
                found = await site.json("/api/v1/apps?search=hungry")
            assert everything["total"] == 3
            assert {app["name"] for app in running["apps"]} == {"hungry", "content"}
            assert (two["total"], len(two["apps"])) == (3, 2)
            assert (found["total"], [app["name"] for app in found["apps"]]) == (None, ["hungry"])

        run(scenario)

    def test_apps_are_read_on_page_by_page(self):
        async def scenario():
            async with served(busy()) as site:
                first = await site.json("/api/v1/apps?limit=2")
                rest = await site.json(f"/api/v1/apps?limit=2&after={first['next_after']}")
            assert [app["app_id"] for app in first["apps"]] == ["app-0002", "app-0001"]
            assert [app["app_id"] for app in rest["apps"]] == ["app-0003"]
            assert (first["next_after"], rest["next_after"]) == ("active-1", None)

        run(scenario)

    def test_unknown_values_of_an_app_are_null(self):
        async def scenario():
            case = busy()
            async with served(case) as site:
                app = await site.json("/api/v1/apps/app-0001")
            assert (app["gpus"], app["gpus_unmet"], app["phase"]) == (2, 4, 1)
            assert app["rho"] == pytest.approx(case.manager.estimates.rho(case.entries.get("app-0001")), rel=1e-3)
            assert app["jobs"][0]["loss"] is None
            assert app["jobs"][1]["loss"] == 0.25
            assert app["jobs"][0]["accuracy"] is None
            assert [job["health"] for job in app["jobs"][:2]] == ["its loss is no number since iteration 38", None]
            assert [job["tracked_run"] for job in app["jobs"][:2]] == ["https://wandb.ai/me/digits/runs/1b2c", None]
            assert [job["pace_known"] for job in app["jobs"][:2]] == [False, False]
            assert app["finished_at_s"] is None
            assert [lease["gpu"] for lease in app["leases"]] == ["m00/0", "m00/1"]
            assert (app["waiting"]["rank"], app["waiting"]["of"]) == (1, 1)
            assert app["estimate"]["first_gpu_s"] == {"median": 0.0, "low": 0.0, "high": 0.0}
            end_s = app["estimate"]["end_s"]
            assert 0.0 < end_s["low"] <= end_s["median"] <= end_s["high"]

        run(scenario)

    def test_an_app_without_unmet_demand_does_not_wait(self):
        async def scenario():
            async with served(busy()) as site:
                assert (await site.json("/api/v1/apps/app-0002"))["waiting"] is None
                assert (await site.json("/api/v1/apps/app-0003"))["waiting"] is None

        run(scenario)

    def test_tokens_and_task_variables_are_not_shown(self):
        async def scenario():
            case = busy()
            token = case.entries.get("app-0001").token_sha256 = hashed("the token of a test")
            async with served(case) as site:
                for path in ("/", "/apps/app-0001", "/api/v1/apps/app-0001", "/api/v1/events?limit=500"):
                    assert token not in await site.text(path)

        run(scenario)

    def test_rounds_newest_first(self):
        async def scenario():
            async with served(busy()) as site:
                rounds = (await site.json("/api/v1/rounds"))["rounds"]
                one = (await site.json("/api/v1/rounds?limit=1"))["rounds"]
            assert [each["round_id"] for each in rounds] == [2, 1]
            assert one == rounds[:1]
            assert rounds[0]["worst_first"] == ["app-0002", "app-0001"]
            assert rounds[0]["reports"] == {
                "app-0001": {"rho": None, "demand_gpus": 4},
                "app-0002": {"rho": None, "demand_gpus": 4},
            }
            assert rounds[1]["reports"]["app-0001"]["rho"] == 4.0
            assert rounds[1]["bids_s"] == pytest.approx(0.25)
            assert rounds[1]["auction"]["payments"] == {"app-0001": 0.8}
            assert rounds[1]["won_gpus"] == {"app-0001": {"m00": 2}}

        run(scenario)

    def test_events_can_be_read_on(self):
        async def scenario():
            case = busy()
            count = len(case.recorder.events(0, "", 10_000))
            async with served(case) as site:
                first = await site.json("/api/v1/events?limit=4")
                rest = await site.json(f"/api/v1/events?after={first['next_after']}&limit=500")
                end = await site.json(f"/api/v1/events?after={rest['next_after']}")
                mine = await site.json("/api/v1/events?app=done")
            numbers = [event["sequence"] for event in (*first["events"], *rest["events"])]
            assert numbers == list(range(1, count + 1))
            assert end == {"next_after": count, "events": []}
            assert [event["kind"] for event in mine["events"]] == ["app_submitted"]

        run(scenario)

    @pytest.mark.parametrize(
        ("path", "status", "what"),
        [
            ("/api/v1/apps/nobody", 404, "unknown app"),
            ("/api/v1/nothing", 404, "no such page"),
            ("/api/v1/apps?state=HAPPY", 400, "unknown state of an app"),
            ("/api/v1/apps?after=app-0001", 400, "not the mark of a page"),
            ("/api/v1/rounds?limit=many", 400, "limit must be a whole number from 0 on"),
            ("/api/v1/rounds?limit=-1", 400, "limit must be a whole number from 0 on"),
            ("/api/v1/events?after=1_0", 400, "after must be a whole number from 0 on"),
            ("/api/v1/events?app=nobody", 404, "unknown app"),
        ],
    )
    def test_errors_name_the_problem_and_the_value(self, path, status, what):
        async def scenario():
            async with served(busy()) as site:
                got, headers, text = await site.get(path)
                assert got == status
                assert headers["Content-Type"].startswith("application/json")
                assert '"what": "' + what in text
                assert set(re.findall(r'"(what|value|remedy)":', text)) == {"what", "value", "remedy"}

        run(scenario)

    def test_missing_pages_are_html(self):
        async def scenario():
            async with served(busy()) as site:
                for path in ("/apps/nobody", "/nothing"):
                    status, headers, text = await site.get(path)
                    assert status == 404
                    assert headers["Content-Type"].startswith("text/html")
                    assert len(Elements(text).of("h1")) == 1

        run(scenario)

    @pytest.mark.parametrize("path", ["/", "/api/v1/apps"])
    def test_addresses_that_show_take_no_post(self, path):
        async def scenario():
            async with served(busy()) as site:
                status, headers, text = await site.get(path, "POST")
                assert status == 405
                assert headers["Allow"] == "GET, HEAD"
                assert "it takes GET, HEAD" in text

        run(scenario)

    def test_internal_error_is_answered_logged_and_next_request_served(self, caplog):
        async def scenario():
            case = busy()
            rounds, case.manager.rounds = case.manager.rounds, None
            async with served(case) as site:
                status, _, text = await site.get("/api/v1/cluster")
                assert status == 500
                assert "a defect of Themis" in text
                case.manager.rounds = rounds
                assert (await site.get("/api/v1/cluster"))[0] == 200
            assert "a page failed: /api/v1/cluster" in caplog.text

        run(scenario)
