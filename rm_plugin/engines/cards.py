"""The GPUs (cards) of this machine, as nvidia-smi reports them, and what a cluster file may say of them."""

from __future__ import annotations

import logging
import re
import subprocess
from collections.abc import Sequence

from themis.cluster import Cluster, Machine
from themis.errors import InputError
from themis.values import Value

_LOG = logging.getLogger(__name__)
_QUERY = ("nvidia-smi", "--query-gpu=index,name,memory.total,mig.mode.current", "--format=csv,noheader,nounits")
_QUERY_LIMIT_S = 30.0
_MODEL = re.compile(r"\b(?:RTX|GTX) ?(?:PRO |A)?\d{3,4}(?: ?Ti)?\b|\b[A-Z]{1,2}\d{1,3}[A-Z]?\b")
"""The model in a product name: H100 in `NVIDIA H100 80GB HBM3`, RTX 3090 in `NVIDIA GeForce RTX 3090`."""


class Card(Value, frozen=True, kw_only=True):
    """One GPU of this machine.

    Attributes:
        index: Its number in the order of the PCI bus, as `CUDA_VISIBLE_DEVICES` names it for tasks.
        name: The product name.
        memory_mb: Its memory in MiB.
        is_divided: Whether MIG is on. Then CUDA shows its parts and not the card.
    """

    index: int
    name: str
    memory_mb: int
    is_divided: bool = False

    @property
    def model(self) -> str:
        """The model as a name of a device type, for example `h100`."""
        found = _MODEL.search(self.name)
        return re.sub(r"[^a-z0-9]+", "", (found[0] if found else self.name.removeprefix("NVIDIA")).lower())


def read_cards() -> tuple[Card, ...] | None:
    """Return the cards of this machine. None if nvidia-smi is not installed.

    Raises:
        InputError: nvidia-smi fails, does not answer, or prints something else.
    """
    try:
        done = subprocess.run(_QUERY, capture_output=True, text=True, timeout=_QUERY_LIMIT_S, check=True)
    except FileNotFoundError:
        return None
    except subprocess.CalledProcessError as error:
        raise InputError(
            "nvidia-smi fails", value=(error.stdout + error.stderr).strip(), remedy="check the driver"
        ) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError("nvidia-smi does not answer", value=str(error), remedy="check the driver") from error
    return parse_cards(done.stdout)


def parse_cards(text: str) -> tuple[Card, ...]:
    """Return the cards in nvidia-smi's answer, by index. Raises InputError if a line is not understood."""
    return tuple(sorted((_parse_card(line) for line in text.splitlines() if line.strip()), key=lambda card: card.index))


def _parse_card(line: str) -> Card:
    try:
        index, name, memory_mb, mig = (field.strip() for field in line.split(","))
        return Card(index=int(index), name=name, memory_mb=int(memory_mb), is_divided=mig == "Enabled")
    except ValueError as error:
        raise InputError(f"unexpected answer of {' '.join(_QUERY)}", value=line, remedy="check the driver") from error


def machine_with_cards(cluster: Cluster) -> Machine | None:
    """Return the machine of a cluster whose devices are real cards. None if there is none.

    Raises:
        InputError: There are several, but an engine that starts tasks on one machine has the cards of one machine.
    """
    found = [
        machine
        for machine in cluster.machines
        if machine.device in cluster.devices and cluster.devices[machine.device].has_card
    ]
    if len(found) > 1:
        raise InputError(
            "this engine has the cards of one machine only",
            value=[machine.machine_id for machine in found],
            remedy="leave one in the cluster file, or mark the device type of the others as emulated",
        )
    return found[0] if found else None


def check_cards(machine: Machine, cards: Sequence[Card] | None) -> None:
    """Raise InputError unless this machine has the cards that the cluster file gives to `machine`.

    Without nvidia-smi, cards of another maker may be there. Then it only logs a warning.
    """
    if cards is None:
        _LOG.warning("nvidia-smi is not installed: the %d GPUs of %s are not checked", machine.gpus, machine.machine_id)
        return
    remedy = "correct the cluster file (`themis rm detect` writes one), or mark the device type as emulated"
    if machine.gpus > len(cards):
        raise InputError(
            f"the cluster file gives {machine.gpus} GPUs to {machine.machine_id}, and nvidia-smi shows fewer",
            value=len(cards),
            remedy=remedy,
        )
    divided = [card.index for card in cards[: machine.gpus] if card.is_divided]
    if divided:
        raise InputError(
            "MIG is on, so tasks cannot get whole cards", value=divided, remedy="nvidia-smi -i INDEX -mig 0"
        )


def cluster_file(cards: Sequence[Card], *, host: str, cores: int, cpu_nodes: int = 0) -> str:
    """Return the text of a cluster file with the cards of this machine, in one slot.

    Args:
        cards: The cards; at least one.
        host: Name of the machine, for the cluster's name.
        cores: CPU cores of the machine.
        cpu_nodes: CPU nodes beside the cards. They share the cores that are left when each card has one.

    Raises:
        InputError: There are no cards, or too few cores for the CPU nodes.
    """
    if not cards:
        raise InputError("nvidia-smi shows no cards", remedy="check the driver, or use an emulated example cluster")
    models = {card.model for card in cards}
    device = models.pop() if len(models) == 1 else "gpu"
    names = dict.fromkeys(card.name for card in cards)
    if not 0 <= cpu_nodes <= cores - len(cards):
        remedy = f"of {cores} cores each card takes one, and each CPU node one or more"
        raise InputError("this number of CPU nodes does not fit", value=cpu_nodes, remedy=remedy)
    node_cores = (cores - len(cards)) // cpu_nodes if cpu_nodes else 0
    lines = [
        f"# The cards of {host}: {', '.join(names)}.",
        *(["# They are of several models, and Themis takes them for equally fast."] if len(names) > 1 else []),
        "# If the cards are linked in groups (nvidia-smi topo -m), give the size of each group in `slots`.",
        f"name: {host}",
        "devices:",
        f"  {device}: {{memory_mb: {min(card.memory_mb for card in cards)}}}",
        *(["  cpu: {kind: cpu}"] if cpu_nodes else []),
        "machines:",
        f"  - {{prefix: gpu-, slots: [{len(cards)}], device: {device}, cpus: {cores - cpu_nodes * node_cores},"
        " racks: [rack0]}",
        *(
            [f"  - {{prefix: cpu-, count: {cpu_nodes}, slots: [1], device: cpu, cpus: {node_cores}, racks: [rack0]}}"]
            if cpu_nodes
            else []
        ),
    ]
    return "\n".join(lines) + "\n"
