"""Themis as YARN's ResourceManager, read by the client library of YARN, and by Hadoop's documented schema."""

import asyncio

import pytest
from web_cases import NOW_S, RmCase, busy, served
from yarn_api_client import ResourceManager
from yarn_api_client.errors import APIError

from rm_plugin.service.web import readers
from themis.lifecycle import AppState

# The elements of "ResourceManager REST API's", Hadoop 3.3.6, that hold for every cluster.
INFO = "id startedOn state haState resourceManagerVersion resourceManagerBuildVersion hadoopVersion hadoopBuildVersion"
METRICS = (
    "appsSubmitted appsCompleted appsPending appsRunning appsFailed appsKilled reservedMB availableMB allocatedMB "
    "totalMB reservedVirtualCores availableVirtualCores allocatedVirtualCores totalVirtualCores containersAllocated "
    "containersReserved containersPending totalNodes activeNodes lostNodes unhealthyNodes decommissioningNodes "
    "decommissionedNodes rebootedNodes"
)
APP = (
    "id user name queue state finalStatus progress trackingUI trackingUrl diagnostics clusterId applicationType "
    "applicationTags priority startedTime finishedTime elapsedTime amContainerLogs amHostHttpAddress allocatedMB "
    "allocatedVCores runningContainers memorySeconds vcoreSeconds unmanagedApplication"
)
NODE = (
    "rack state id nodeHostName nodeHTTPAddress lastHealthUpdate healthReport numContainers usedMemoryMB "
    "availMemoryMB usedVirtualCores availableVirtualCores totalResource"
)


def asked(case, question):
    """What the client library answers to a question; it blocks, so it runs in a thread."""

    async def scenario():
        async with served(case) as site:
            return await asyncio.to_thread(lambda: question(ResourceManager(service_endpoints=[site.url.rstrip("/")])))

    return asyncio.run(asyncio.wait_for(scenario(), 30))


def in_loop(make):
    async def made():
        return make()

    return asyncio.run(made())


@pytest.fixture
def case():
    case = in_loop(busy)
    case.app("well", state=AppState.FINISHED, finished_at_s=NOW_S + 60.0, user="bob", queue="night")
    return case


@pytest.fixture
def of_ada(monkeypatch):
    monkeypatch.setattr(readers, "user_name", lambda uid: "ada")


def test_cluster_info_has_yarns_elements(case):
    info = asked(case, lambda rm: rm.cluster_information().data["clusterInfo"])
    assert set(INFO.split()) <= set(info)
    assert (info["state"], info["haState"]) == ("STARTED", "ACTIVE")


def test_cluster_metrics_count_apps_and_nodes(case):
    metrics = asked(case, lambda rm: rm.cluster_metrics().data["clusterMetrics"])
    assert set(METRICS.split()) <= set(metrics)
    counts = {
        key: metrics[f"apps{key}"] for key in ("Submitted", "Completed", "Pending", "Running", "Failed", "Killed")
    }
    assert counts == {"Submitted": 4, "Completed": 1, "Pending": 0, "Running": 2, "Failed": 1, "Killed": 0}
    assert (metrics["totalNodes"], metrics["activeNodes"], metrics["containersAllocated"]) == (3, 3, 5)


def test_apps_have_yarns_elements_and_ids(case, of_ada):
    apps = asked(case, lambda rm: rm.cluster_applications().data["apps"]["app"])
    assert all(set(APP.split()) <= set(app) for app in apps)
    assert [app["id"].rpartition("_")[2] for app in apps] == ["0002", "0001", "0004", "0003"]
    assert [app["finalStatus"] for app in apps] == ["UNDEFINED", "UNDEFINED", "SUCCEEDED", "FAILED"]
    assert apps[1]["progress"] == 50.0
    assert (apps[2]["elapsedTime"], apps[2]["runningContainers"]) == (59_500, -1)
    assert apps[3]["diagnostics"] == "no luck"


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        ({"states": ["RUNNING"]}, ["content", "hungry"]),
        ({"states": ["FINISHED", "FAILED"]}, ["well", "done"]),
        ({"final_status": "SUCCEEDED"}, ["well"]),
        ({"user": "bob"}, ["well"]),
        ({"queue": "night"}, ["well"]),
        ({"limit": "1"}, ["content"]),
        ({"finished_time_begin": str(int(1000 * NOW_S))}, ["well"]),
        ({"application_types": ["THEMIS"], "user": "nobody"}, []),
    ],
)
def test_filters_of_yarn_pick_apps(case, filters, names):
    apps = asked(case, lambda rm: rm.cluster_applications(**filters).data["apps"])
    assert [app["name"] for app in (apps or {"app": []})["app"]] == names


def test_one_app_is_found_by_yarns_id_and_by_ours(case):
    def question(rm):
        app_id = rm.cluster_applications(user="bob").data["apps"]["app"][0]["id"]
        return [
            rm.cluster_application(app_id).data["app"]["name"],
            rm.cluster_application("app-0004").data["app"]["name"],
            rm.cluster_application_state(app_id).data,
        ]

    assert asked(case, question) == ["well", "well", {"state": "FINISHED"}]


def test_paused_app_is_accepted_in_yarns_words(case):
    case.entries.get("app-0001").update(state=AppState.PAUSED)
    app = asked(case, lambda rm: rm.cluster_application("app-0001").data["app"])
    assert (app["state"], app["finalStatus"], app["diagnostics"]) == ("ACCEPTED", "UNDEFINED", "paused")


def test_another_users_texts_are_not_shown(case, monkeypatch):
    monkeypatch.setattr(readers, "user_name", lambda uid: "eve")
    app = asked(case, lambda rm: rm.cluster_application("app-0003").data["app"])
    assert app["diagnostics"] == ""


def test_nodes_have_yarns_elements_and_their_gpus(case):
    nodes = asked(case, lambda rm: rm.cluster_nodes().data["nodes"]["node"])
    assert all(set(NODE.split()) <= set(node) for node in nodes)
    first = nodes[0]
    assert (first["nodeHostName"], first["rack"], first["state"], first["numContainers"]) == (
        "m00",
        "/rack0",
        "RUNNING",
        4,
    )
    amounts = {
        each["name"]: each["value"] for each in first["totalResource"]["resourceInformations"]["resourceInformation"]
    }
    assert amounts["yarn.io/gpu"] == 4


def test_lost_and_drained_machines_have_yarns_states(case):
    case.arbiter.machine_lost("m10", now_s=NOW_S + 5, reason="gone")
    case.manager.live_cluster.drained = frozenset({"m00"})

    def question(rm):
        return (
            [
                node["nodeHostName"]
                for node in rm.request("/ws/v1/cluster/nodes", params={"states": "LOST"}).data["nodes"]["node"]
            ],
            {node["nodeHostName"]: node["state"] for node in rm.cluster_nodes().data["nodes"]["node"]},
            rm.cluster_node("m10:0").data["node"]["state"],
        )

    assert asked(case, question) == (["m10"], {"m00": "DECOMMISSIONING", "m01": "RUNNING"}, "LOST")


@pytest.mark.parametrize(
    "question",
    [
        lambda rm: rm.cluster_application("application_1_9999"),
        lambda rm: rm.cluster_node("nowhere:0"),
        lambda rm: rm.cluster_applications(limit="many"),
    ],
)
def test_what_is_unknown_or_invalid_is_an_error_of_the_client(case, question):
    with pytest.raises(APIError):
        asked(case, question)


def test_empty_cluster_has_null_apps_as_yarn_has():
    assert asked(in_loop(lambda: RmCase(((1,),))), lambda rm: rm.cluster_applications().data) == {"apps": None}
