"""Families of random markets by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rm_plugin.arbiter.seeds import child_seed
from themis.bids import Market
from themis.cluster import Level
from themis.errors import UnknownNameError
from themis.values import Value
from themis_lab.audit import corners
from themis_lab.audit.agent_markets import agents, large, testbed
from themis_lab.audit.homogeneous import homogeneous, homogeneous_kept
from themis_lab.audit.recipes import Recipe, random_market


class Family(Value, frozen=True, kw_only=True):
    """Markets of one kind: a name, a description, and a function that makes the market of a seed.

    `group` separates the measures, because they mean different things for valuations that theory covers, for those of
    real agents, and for random numbers. A family without a group is not measured, because its ratios mean nothing.
    """

    name: str
    about: str
    draw: Callable[[int], Market]
    group: str = "drawn"

    def market(self, seed: int, number: int) -> Market:
        """Market `number` of this family for the audit's seed. It does not depend on the other audited families."""
        return self.draw(child_seed(seed, "market", self.name, str(number)))


def _by_recipe(name: str, about: str, recipe: Recipe, group: str = "drawn") -> Family:
    return Family(name=name, about=about, draw=lambda seed: random_market(seed, recipe), group=group)


_NEAR = (Level.SLOT, Level.SLOT, Level.MACHINE)
_RACK = (Level.RACK, Level.RACK, Level.MACHINE, Level.CLUSTER)

FAMILIES: Mapping[str, Family] = {
    family.name: family
    for family in (
        _by_recipe("tiny", "two or three bidders on three machines", Recipe(machines=3, bidders=3, rows=3)),
        _by_recipe("mixed", "gangs of all kinds on four machines", Recipe()),
        _by_recipe("slots", "gangs within slots", Recipe(levels=_NEAR, slot_gpus=4, pinned=False)),
        _by_recipe("racks", "gangs within racks", Recipe(machines=5, racks=3, sizes=(2, 4, 6), levels=_RACK)),
        _by_recipe("units", "gangs in units of two and three GPUs", Recipe(sizes=(2, 4, 6), pinned=False)),
        _by_recipe("pinned", "GPUs kept: pinned rows, gangs over machines", Recipe(pinned_gangs=True, units=False)),
        _by_recipe(
            "regrouped",
            "rows that differ only in which pinned GPUs belong together",
            Recipe(pinned_gangs=True, regrouped=True, units=False, rows=3),
        ),
        _by_recipe("explicit", "rows that name machines only", Recipe(explicit=True, bidders=4)),
        Family(
            name="explicit-poor",
            about="rows that name machines only, empty bundles worth 0",
            draw=corners.explicit_poor,
        ),
        Family(name="fragmented", about="many machines with few free GPUs", draw=corners.fragmented),
        Family(
            name="unlike-slots", about="machines of many slots of unlike size, partly held", draw=corners.unlike_slots
        ),
        Family(name="lexicographic", about="empty bundles worth 0", draw=corners.lexicographic),
        Family(name="identical", about="bidders with one bid", draw=corners.identical),
        _by_recipe("ties", "many choices of one value", Recipe(value=corners.tied_value, empty=(0.125, 0.125))),
        _by_recipe(
            "extreme", "values from 1e-9 to 1e9", Recipe(value=corners.extreme_value, empty=(1e-9, 1e-8), rows=4), ""
        ),
        Family(name="one-machine", about="one machine", draw=corners.one_machine),
        Family(name="single-bidder", about="one bidder", draw=corners.single_bidder),
        Family(name="nothing-free", about="no free GPU, or no machine", draw=corners.nothing_free),
        Family(
            name="no-feasible-rows", about="bidders without rows, rows that never fit", draw=corners.no_feasible_rows
        ),
        Family(
            name="homogeneous", about="valuations of degree one, nothing kept", draw=homogeneous, group="homogeneous"
        ),
        Family(
            name="homogeneous-kept",
            about="valuations of degree one, GPUs kept",
            draw=homogeneous_kept,
            group="homogeneous-kept",
        ),
        Family(name="agents", about="bids of real agents on 13 GPUs", draw=agents, group="agents"),
        Family(name="testbed", about="bids of real agents on 64 GPUs", draw=testbed, group="agents"),
        Family(name="large", about="bids of real agents on 168 GPUs", draw=large, group="agents"),
    )
}
"""All families, in the order in which an audit takes them in turn."""


def family(name: str) -> Family:
    """Return the family of this name. Raises UnknownNameError with the nearest known name."""
    try:
        return FAMILIES[name]
    except KeyError:
        raise UnknownNameError("family of markets", name, FAMILIES) from None
