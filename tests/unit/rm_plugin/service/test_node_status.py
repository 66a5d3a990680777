"""The states of machines, and how many of their GPUs are leased, closed or free."""

import asyncio

from web_cases import RmCase

from rm_plugin.service.node_status import node_statuses
from themis.cluster import GpuId


def test_every_state_of_a_machine_is_shown_with_its_gpus():
    async def scenario():
        case = RmCase(((4,), (2,), (2,), (2,)))
        case.running("one", unmet=0)
        case.grant(app_0001={"m00": 1})
        case.clock.advance_to(case.clock.now_s() + 100.0)
        case.grant(app_0001={"m00": 1, "m01": 1})
        case.manager.live_cluster.drained = frozenset(["m01"])
        case.arbiter.close_gpus([GpuId("m00", 3), GpuId("m03", 0), GpuId("m03", 1)])
        case.arbiter.machine_lost("m02", now_s=case.clock.now_s(), reason="its switch died")
        # In order of their grants: the last lease of a machine ends last.
        ends_s = {lease.gpu.machine_id: lease.expires_at_s for _, lease in sorted(case.arbiter.table.live.items())}
        shown = [
            (node.state, node.gpus, node.gpus_leased, node.gpus_closed, node.gpus_free, node.last_lease_end_s)
            for node in node_statuses(case.manager)
        ]
        assert shown == [
            ("usable", 4, 2, 1, 1, ends_s["m00"]),
            ("drained", 2, 1, 0, 1, ends_s["m01"]),
            ("lost", 2, 0, 0, 0, 0.0),
            ("closed", 2, 0, 2, 0, 0.0),
        ]

    asyncio.run(scenario())
