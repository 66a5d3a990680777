"""Which machines chosen rows get where several places are as good."""

from rm_plugin.solvers.bidders import MarketRow
from rm_plugin.solvers.kinds import Kind
from rm_plugin.solvers.realise import Layout, realise
from themis.bids import FreeMachine
from themis.cluster import Allocation, Level


def machine(machine_id, device):
    return FreeMachine(machine_id=machine_id, rack_id="r0", free_slots=(2,), device=device)


def placed(machines, kind_by_app):
    """GPUs by app and machine, of one gang of each app; None if not all were placed."""
    chosen = {
        app_id: MarketRow(row=0, log_value=1.0, kinds=((kind, 1),), pinned=Allocation(), pinned_parts=())
        for app_id, kind in kind_by_app.items()
    }
    gangs = realise(machines, chosen, has_types=True)
    return gangs and {app_id: [gang.gpus.by_machine() for gang in each] for app_id, each in gangs.items()}


def test_equally_free_types_leave_the_gang_to_the_smaller_name():
    machines = (machine("m0", "v"), machine("m1", "v"), machine("m2", "k"), machine("m3", "k"))
    assert placed(machines, {"a": Kind(Level.CLUSTER, 3, 1)}) == {"a": [{"m2": 2, "m3": 1}]}


def test_a_gang_that_names_its_type_comes_before_one_that_does_not():
    """Both fit on m0, and on m1 only the app a, which comes first in order of app ids and would take m0."""
    machines = (machine("m0", "k"), machine("m1", "v"))
    kinds = {"a": Kind(Level.MACHINE, 2, 2), "b": Kind(Level.MACHINE, 2, 2, "k")}
    assert placed(machines, kinds) == {"a": [{"m1": 2}], "b": [{"m0": 2}]}


def test_of_gangs_of_one_kind_the_smaller_app_id_is_placed_first():
    """Whichever app was chosen first: the first machine is that of a."""
    machines = (machine("m0", "k"), machine("m1", "k"))
    kind = Kind(Level.MACHINE, 2, 2)
    for apps in ("ab", "ba"):
        assert placed(machines, dict.fromkeys(apps, kind)) == {"a": [{"m0": 2}], "b": [{"m1": 2}]}


def within(layout, machines, kind):
    """GPUs by machine of one gang that is placed within a layout."""
    chosen = {"a": MarketRow(row=0, log_value=1.0, kinds=((kind, 1),), pinned=Allocation(), pinned_parts=())}
    gangs = realise(machines, chosen, layout, has_types=True)
    assert gangs is not None
    return [gang.gpus.by_machine() for gang in gangs["a"]]


def test_of_equally_free_racks_within_a_layout_the_smaller_name_gets_the_gang():
    kind = Kind(Level.RACK, 2, 2)
    machines = [
        FreeMachine(machine_id=f"m{place}", rack_id=f"r{place}", free_slots=(2,), device="k") for place in (1, 0)
    ]
    layout = Layout(racks={(kind, "r0/k"): 1, (kind, "r1/k"): 1}, units={(2, "m0"): 1, (2, "m1"): 1})
    assert within(layout, machines, kind) == [{"m0": 2}]


def test_of_equally_free_types_within_a_layout_the_smaller_name_gets_the_gang():
    kind = Kind(Level.CLUSTER, 2, 2)
    machines = (machine("m0", "v"), machine("m1", "k"))
    layout = Layout(types={(kind, "v"): 1, (kind, "k"): 1}, units={(2, "m0"): 1, (2, "m1"): 1})
    assert within(layout, machines, kind) == [{"m1": 2}]
