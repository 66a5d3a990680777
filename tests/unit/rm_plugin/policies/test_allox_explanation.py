"""What a user reads of AlloX' decision about an app."""

from oef_round_cases import demand, round_of

from rm_plugin.policies.allox_policy import AlloxMemory, RunningJob
from rm_plugin.policies.allox_rules import RULES
from rm_plugin.policies.registry import make_policy
from themis.queues import AppOwner

OWNERS = {"a1": AppOwner(user="ann"), "a2": AppOwner(user="ann"), "b1": AppOwner(user="bob")}


def explained(memory, app_id, policy="allox"):
    return dict(make_policy(policy).explain(memory, app_id))


def memory_after_round(policy="allox"):
    """Two apps of ann and one of bob, with a job each that takes 500 s on a K80 and 250 s on a V100."""
    demands = {name: [demand(2.0, job="j", gpus=1, work_left_gpu_s=500.0)] for name in OWNERS}
    return make_policy(policy).decide(round_of(demands, owners=OWNERS, alpha=1.0)).memory


def test_explanation_names_tenant_progress_times_and_running_job():
    assert explained(memory_after_round(), "a1") == {
        "Tenant": "user ann, with a2",
        "Progress": "0.5, number 2 of 2 tenants: the least goes first",
        "Time by type": "k80 500 s, v100 250 s; best on v100",
        "Runs": "j on v:0, 250 s from its start",
    }


def test_waiting_app_reads_progress_and_times_without_a_job():
    running = RunningJob(user="user ann", value=0.25, started_at_s=0.0, time_s=9.0, device_id="g")
    memory = AlloxMemory(
        tenants={"a": "user ann", "b": "user bob"}, running={"a": {"j": running}}, times_s={"b": {"gpu": 1234.56}}
    )
    assert explained(memory, "b") == {
        "Tenant": "user bob",
        "Progress": "0, number 1 of 2 tenants: the least goes first",
        "Time by type": "gpu 1235 s",
    }


def test_equal_progress_ranks_by_the_last_start():
    memory = AlloxMemory(tenants={"a": "user ann", "b": "user bob"}, last_start_s={"user ann": 7.0, "user bob": 3.0})
    assert explained(memory, "a")["Progress"].startswith("0, number 2 of 2")
    assert explained(memory, "b")["Progress"].startswith("0, number 1 of 2")


def test_of_many_running_jobs_those_that_end_first_are_named():
    jobs = {
        f"j{n}": RunningJob(user="user ann", value=0.1, started_at_s=0.0, time_s=10.0 * (9 - n), device_id=f"g{n}")
        for n in range(5)
    }
    memory = AlloxMemory(tenants={"a": "user ann"}, running={"a": jobs})
    assert explained(memory, "a") == {
        "Tenant": "user ann",
        "Progress": "0.5",
        "Runs": "j4 on g4, 50 s from its start; j3 on g3, 60 s from its start; j2 on g2, 70 s from its start; 2 more",
    }


def test_every_policy_explains_and_only_allox_by_progress():
    for policy in RULES:
        lines = explained(memory_after_round(policy), "a1", policy)
        assert lines["Time by type"] == "k80 500 s, v100 250 s; best on v100"
        assert ("Progress" in lines) == (policy == "allox")


def test_unknown_app_and_memory_of_another_policy_have_no_explanation():
    assert explained(memory_after_round(), "new") == {}
    assert explained(AppOwner(user="ann"), "a1") == {}


def test_app_that_is_gone_is_forgotten():
    memory = memory_after_round()
    later = make_policy("allox").decide(round_of({"b1": ()}, owners=OWNERS, memory=memory)).memory
    assert explained(later, "a1") == {}
    assert explained(later, "b1")["Tenant"] == "user bob"
    assert set(later.times_s) == {"b1"}
