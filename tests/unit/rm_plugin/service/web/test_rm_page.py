"""The pages of the ResourceManager: what they show, and that names never become HTML."""

from msgspec.structs import replace
from web_cases import HOSTILE, NOW_S, Elements, RmCase, busy, run, served

from rm_plugin.service.web import readers, routes
from themis.apps import MetricSpec
from themis.cluster import GpuId
from themis.web.static_files import ACTIONS_SCRIPT, CHART_SCRIPTS, LOGS_SCRIPT, TABLES_SCRIPT
from themis.wire import themis_pb2 as pb


class TestHome:
    def test_shows_every_gpu_as_a_box_of_its_state(self):
        async def scenario():
            case = busy()
            case.arbiter.close_gpus([GpuId("m01", 3)])
            case.arbiter.machine_lost("m10", now_s=NOW_S, reason="gone")
            async with served(case) as site:
                page = Elements(await site.text("/"))
            assert len(page.of_class("gpu")) == 10
            counts = {state: len(page.of_class(state)) for state in ("leased", "free")}
            assert counts == {"leased": 5, "free": 2}
            assert [attrs["title"] for attrs in page.of_class("gpu") if "closed" in attrs["class"]] == ["m01/3: closed"]
            assert sum("lost" in attrs["class"] for attrs in page.of_class("gpu")) == 2
            assert [attrs["class"] for attrs in page.of_class("machine")].count("machine lost") == 1
            assert "emulated" in page.text

        run(scenario)

    def test_boxes_have_the_colour_of_their_app(self):
        async def scenario():
            async with served(busy()) as site:
                page = Elements(await site.text("/"))
            colours = [attrs["style"] for attrs in page.of_class("leased")]
            assert len(set(colours)) == 2
            assert sorted(colours.count(colour) for colour in set(colours)) == [2, 3]

        run(scenario)

    def test_apps_are_listed_with_ended_ones_last(self):
        async def scenario():
            async with served(busy()) as site:
                text = Elements(await site.text("/")).text
            assert text.index("app-0002") < text.index("app-0001") < text.index("app-0003")
            assert "rho, fluid" in text
            assert "FAILED" in text

        run(scenario)

    def test_app_without_a_gpu_is_shown_as_waiting_everywhere(self):
        async def scenario():
            case = busy()
            idle = case.running("idle", unmet=8, user="eve")
            async with served(case) as site:
                for path in ("/", "/apps", f"/apps/{idle.app_id}"):
                    assert "WAITING" in Elements(await site.text(path)).text, path
                document = await site.json(f"/api/v1/apps/{idle.app_id}")
                held = await site.json("/api/v1/apps/app-0001")
            assert (document["state"], document["shown_state"], document["gpus"]) == ("RUNNING", "WAITING", 0)
            assert (held["state"], held["shown_state"]) == ("RUNNING", "RUNNING")

        run(scenario)

    def test_search_is_answered_from_all_apps_and_stays_in_its_field(self):
        async def scenario():
            case = busy()
            case.running("idle", user="eve")
            async with served(case) as site:
                page = Elements(await site.text("/apps?search=EVE+waiting"))
                apps = (await site.json("/api/v1/apps?search=eve"))["apps"]
                nothing = Elements(await site.text("/apps?search=%22%3Cnobody"))
            (field,) = page.of("input")
            assert (field["name"], field["value"]) == ("search", "EVE waiting")
            assert page.of("form")[0]["action"] == "apps"
            assert "idle" in page.text and "app-0001" not in page.text
            assert [app["name"] for app in apps] == ["idle"]
            assert nothing.of("input")[0]["value"] == '"<nobody' and "None." in nothing.text

        run(scenario)

    def test_users_and_queues_show_who_holds_and_who_waits(self):
        async def scenario():
            case = busy()
            case.running("other", unmet=8, user="eve", queue="research")
            async with served(case) as site:
                text = Elements(await site.text("/")).text
            # Apps, those without a GPU, GPUs, and how many more they could use.
            assert "adadefault2" + "5+4" in text
            assert "everesearch11" + "0+8" in text

        run(scenario)

    def test_apps_say_why_they_wait_to_their_user_only(self, monkeypatch):
        async def scenario():
            for reader, seen in (("ada", 1), ("eve", 0)):
                monkeypatch.setattr(readers, "user_name", lambda _uid, reader=reader: reader)
                async with served(busy()) as site:
                    text = Elements(await site.text("/")).text
                assert text.count("more would not pay for a restart") == seen

        run(scenario)

    def test_rounds_show_offers_bids_and_wins(self):
        async def scenario():
            async with served(busy()) as site:
                text = Elements(await site.text("/")).text
            assert "3 GPUs, kept 0.8" in text
            assert "12 rows" in text
            assert "rho ∞" in text

        run(scenario)

    def test_rounds_of_a_policy_without_bids_explain_no_auction(self):
        async def scenario():
            case = RmCase(((4,),))
            case.running("served")
            head = {"round_id": 1}
            record = case.recorder.record
            record("round_started", detail={**head, "reasons": ["demand"], "free": {"m00": 4}, "active": ["app-0001"]})
            given = {"auction": {"app-0001": {"m00": 4}}, "leftovers": {}, "usable_left": 0}
            record("round_granted", detail={**head, **given})
            async with served(case) as site:
                text = Elements(await site.text("/")).text
            assert "given to" in text and "served 4 GPUs" in text
            for words in ("An auction offers", "hidden payment", "offered to", "bids", "leftovers"):
                assert words not in text, words

        run(scenario)

    def test_without_apps_and_rounds_it_says_so(self):
        async def scenario():
            async with served(RmCase(((1,),))) as site:
                assert Elements(await site.text("/")).text.count("None yet.") == 2

        run(scenario)

    def test_renews_itself_without_script_too_and_loads_nothing(self):
        async def scenario():
            async with served(busy()) as site:
                page = Elements(await site.text("/"))
                for script in page.of("script"):
                    assert "//" not in script.get("src", "")
                for name in [attrs["src"] for attrs in page.of("script") if "src" in attrs]:
                    assert (await site.get(f"/{name}"))[0] == 200
                for sheet in page.of("link"):
                    assert (await site.get(f"/{sheet['href']}"))[0] == 200
            assert {"http-equiv": "refresh", "content": "5"} in page.of("meta")
            assert not any("src" in attrs for tag, attrs in page.found if tag != "script")

        run(scenario)


class TestAppPage:
    def test_jobs_with_losses_have_a_chart_of_them(self):
        async def scenario():
            case = busy()
            entry = case.entries.get("app-0001")
            entry.take_heartbeat(pb.Heartbeat(loss_curves=[pb.LossCurve(job_id="job-0", iterations=[1], losses=[0.5])]))
            entry.take_heartbeat(pb.Heartbeat(loss_curves=[pb.LossCurve(job_id="job-1", iterations=[2], losses=[0.7])]))
            async with served(case) as site:
                page = Elements(await site.text("/apps/app-0001"))
                (chart,) = [attrs for _, attrs in page.found if attrs.get("data-chart") == "losses"]
                losses = await site.json("/" + chart["data-source"].removeprefix("../"))
            assert [(job["job_id"], job["losses"]) for job in losses["jobs"]] == [("job-0", [0.5]), ("job-1", [0.7])]

        run(scenario)

    def test_declared_metric_is_shown_under_its_own_name_with_its_mode(self):
        async def scenario():
            case = RmCase(((4,),))
            entry = case.running("digits")
            async with served(case) as site:
                undeclared = Elements(await site.text(f"/apps/{entry.app_id}")).text
                entry.spec = replace(entry.spec, metric=MetricSpec(name="val_f1", mode="max"))
                declared = Elements(await site.text(f"/apps/{entry.app_id}")).text
            assert "iterationlossaccuracy" in undeclared
            assert "iterationval_f1accuracy" in declared
            assert "val_f1, higher is better" in declared

        run(scenario)

    def test_declared_metric_names_the_chart_and_its_document(self):
        async def scenario():
            case = busy()
            entry = case.entries.get("app-0001")
            entry.spec = replace(entry.spec, metric=MetricSpec(name="val_f1", mode="max"))
            entry.take_heartbeat(pb.Heartbeat(loss_curves=[pb.LossCurve(job_id="job-0", iterations=[1], losses=[0.5])]))
            async with served(case) as site:
                page = Elements(await site.text("/apps/app-0001"))
                losses = await site.json("/api/v1/apps/app-0001/losses")
                document = await site.json("/api/v1/apps/app-0001")
            (chart,) = [attrs for _, attrs in page.found if attrs.get("data-chart") == "losses"]
            assert chart["aria-label"] == "val_f1 of the jobs over their iterations"
            assert (losses["metric"], document["metric"]["name"]) == ("val_f1", "val_f1")

        run(scenario)

    def test_without_losses_there_is_no_chart(self):
        async def scenario():
            async with served(busy()) as site:
                page = Elements(await site.text("/apps/app-0001"))
            assert not [attrs for _, attrs in page.found if attrs.get("data-chart") == "losses"]

        run(scenario)

    def test_shows_jobs_leases_and_the_reason_for_waiting(self):
        async def scenario():
            case = busy()
            async with served(case) as site:
                page = Elements(await site.text("/apps/app-0001"))
            assert "40/100" in page.text
            assert "in 10:00 min" not in page.text
            assert "in 9:59 min" in page.text
            assert "1 of 1 that could use more" in page.text
            assert "Newest round" in page.text
            assert "in about" in page.text
            assert "hungry was submitted by ada" in page.text
            assert "its loss is no number since iteration 38" in page.text
            assert "https://wandb.ai/me/digits/runs/1b2c" in page.text

        run(scenario)

    def test_shows_device_types_speeds_and_the_words_of_the_policy(self):
        async def scenario():
            case = busy()
            case.explanations["app-0001"] = (("Tenant", "user ann"), ("Fair share", "1 v100 of 2 k80, 1 v100"))
            job = case.manager.entries.get("app-0001").heartbeat.jobs[0]
            job.device = "v100"
            job.speeds.add(device="v100", speed=3.0, measured=True)
            job.speeds.add(device="k80", speed=0.5)
            async with served(case) as site:
                text = Elements(await site.text("/apps/app-0001")).text
                document = await site.json("/api/v1/apps/app-0001")
            assert "Fair share" in text and "1 v100 of 2 k80, 1 v100" in text
            assert "v100 3 (measured), k80 0.5" in text
            assert document["explanation"][0] == {"label": "Tenant", "text": "user ann"}
            assert document["jobs"][0]["device"] == "v100"
            assert document["jobs"][0]["speeds"]["k80"] == {"speed": 0.5, "measured": False}

        run(scenario)

    def test_jobs_show_as_submitted_before_the_first_report(self):
        async def scenario():
            case = RmCase(((1,),))
            case.app("new")
            async with served(case) as site:
                text = Elements(await site.text("/apps/app-0001")).text
                document = await site.json("/api/v1/apps/app-0001")
            assert "0/500" in text
            assert "optimizer=adam" in text
            assert "no round has been played yet" in text
            assert document["jobs"][0]["state"] is None
            assert document["jobs"][0]["hyper_parameters"] == {"learning_rate": 0.1, "optimizer": "adam"}

        run(scenario)

    def test_is_found_by_the_name_too(self):
        async def scenario():
            async with served(busy()) as site:
                assert "app-0002" in await site.text("/apps/content")

        run(scenario)

    def test_a_page_elsewhere_is_linked_only_if_it_is_one(self):
        async def scenario():
            case = busy()
            case.running("evil").page_url = "javascript:alert(1)"
            async with served(case) as site:
                links = [attrs.get("href", "") for attrs in Elements(await site.text("/apps/hungry")).of("a")]
                evil = [attrs.get("href", "") for attrs in Elements(await site.text("/apps/evil")).of("a")]
            assert "http://node:8042/proxy/app/" in links
            assert not any(href.startswith("javascript") for href in (*links, *evil))

        run(scenario)


class TestHostileNames:
    def test_nothing_that_users_named_becomes_html(self):
        async def scenario():
            case = RmCase(((2,),), name=f"cluster{HOSTILE}")
            entry = case.running(f"app{HOSTILE}", unmet=1, user=HOSTILE, queue=HOSTILE)
            entry.diagnostics, entry.engine_id, entry.page_url = HOSTILE, HOSTILE, f"http://x/{HOSTILE}"
            entry.heartbeat.best = HOSTILE
            entry.heartbeat.jobs[0].job_id = HOSTILE
            entry.heartbeat.jobs[0].state = HOSTILE
            entry.heartbeat.jobs[0].health = entry.heartbeat.jobs[0].tracked_run = HOSTILE
            entry.heartbeat.jobs[0].hyper_parameters[HOSTILE].text = HOSTILE
            case.grant(app_0001={"m00": 1})
            case.round(1, {"app-0001": 2.0}, offered=["app-0001", HOSTILE], won={"app-0001": 1})
            case.recorder.record("job_restarted", app_id="app-0001", detail={"reason": HOSTILE, HOSTILE: [HOSTILE]})
            async with served(case, policy=HOSTILE) as site:
                for path in ("/", "/apps/app-0001", f"/apps/{HOSTILE}".replace("/script", "").replace("\n", "")):
                    _, _, text = await site.get(path)
                    page = Elements(text)
                    # The scripts are ours, and no element or attribute came with a name.
                    sources = [script.get("src", "").rpartition("/")[2] for script in page.of("script")]
                    of_apps = ["", *CHART_SCRIPTS, TABLES_SCRIPT]
                    of_app = ["", *CHART_SCRIPTS, ACTIONS_SCRIPT, LOGS_SCRIPT, TABLES_SCRIPT]
                    assert sources in ([""], of_apps, of_app), path
                    assert not [tag for tag, attrs in page.found if any(name.startswith("on") for name in attrs)]
                    assert "alert(7)" in page.text

        run(scenario)

    def test_the_content_policy_allows_only_our_script(self):
        async def scenario():
            async with served(busy()) as site:
                for path in ("/", "/nothing", "/api/v1/apps"):
                    _, headers, _ = await site.get(path)
                    policy = headers["Content-Security-Policy"]
                    assert "default-src 'none'" in policy
                    assert "frame-ancestors 'none'" in policy
                    assert "unsafe-inline" not in policy.split("script-src")[1]
                    assert headers["X-Content-Type-Options"] == "nosniff"

        run(scenario)

    def test_metrics_stay_one_line_a_sample(self):
        async def scenario():
            case = RmCase(((1,),), name='a"b\\c\nd')
            async with served(case) as site:
                text = await site.text("/metrics")
            assert r'themis_info{cluster="a\"b\\c\nd",policy="themis"} 1' in text.splitlines()

        run(scenario)


def test_all_apps_are_shown_a_page_at_a_time(monkeypatch):
    monkeypatch.setattr(routes, "APPS_A_PAGE", 2)

    async def scenario():
        async with served(busy()) as site:
            first = Elements(await site.text("/apps"))
            rest = Elements(await site.text("/apps?after=active-1"))
        assert "app-0001" in first.text and "app-0002" in first.text
        assert "app-0003" not in first.text
        assert {"href": "apps?after=active-1"} in first.of("a")
        assert "app-0003" in rest.text
        assert "These are the last." in rest.text

    run(scenario)
