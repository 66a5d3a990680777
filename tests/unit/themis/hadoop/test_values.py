"""Properties of YARN's values."""

import pytest

from themis.hadoop.values import AllocateReply, AppState, Container, NodeReport, NodeState, ProcessLaunch


def node(number, state):
    return NodeReport(
        node_id=f"host-{number}:45454",
        host=f"host-{number}",
        rack="/default-rack",
        state=state,
        gpus=4,
        used_gpus=0,
        memory_mb=1024,
        used_memory_mb=0,
        vcores=8,
    )


def test_nodes_that_take_no_containers_any_more():
    reply = AllocateReply(nodes=tuple(node(number, state) for number, state in enumerate(NodeState)))
    assert {one.state for one in reply.lost_nodes} == {
        *(NodeState.UNHEALTHY, NodeState.DECOMMISSIONED, NodeState.LOST, NodeState.REBOOTED, NodeState.SHUTDOWN)
    }


@pytest.mark.parametrize("state", AppState)
def test_an_application_is_over_in_three_states(state):
    assert state.is_final == (state.value in ("FINISHED", "FAILED", "KILLED"))


def test_javas_handle_does_not_show():
    fields = {"container_id": "c", "host": "h", "node_id": "h:1", "gpus": 1, "memory_mb": 64, "vcores": 1}
    assert "raw" not in repr(Container(**fields, allocation_request_id=1, raw=object()))


def test_tokens_do_not_show():
    assert "secret" not in repr(ProcessLaunch(commands=("true",), tokens=b"secret"))
