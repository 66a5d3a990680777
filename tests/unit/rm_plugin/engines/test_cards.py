"""The GPUs of this machine: nvidia-smi's answer, a cluster file from it, and its check at the start."""

import asyncio
from pathlib import Path

import pytest
import yaml

from rm_plugin.engines.cards import (
    Card,
    check_cards,
    cluster_file,
    machine_with_cards,
    parse_cards,
    read_cards,
)
from rm_plugin.engines.engine import LocalEngine
from themis.cluster import Cluster, DeviceKind, DeviceType, Machine
from themis.config.cluster_file import ClusterFile, build_cluster
from themis.config.loader import fit
from themis.errors import InputError

H100 = Card(index=0, name="NVIDIA H100 80GB HBM3", memory_mb=81559)


def cards(count, **changes):
    return [
        Card(**{"index": index, "name": H100.name, "memory_mb": H100.memory_mb, **changes}) for index in range(count)
    ]


def cluster(*real, gpus=2):
    machines = [Machine(machine_id=name, rack_id="r", slots=(gpus,), device="gpu") for name in real]
    machines.append(Machine(machine_id="e0", rack_id="r", slots=(2,), device="fake"))
    machines.append(Machine(machine_id="c0", rack_id="r", slots=(1,), device="cpu"))
    devices = {
        "gpu": DeviceType(name="gpu"),
        "fake": DeviceType(name="fake", emulated=True),
        "cpu": DeviceType(name="cpu", kind=DeviceKind.CPU),
    }
    return Cluster(name="c", machines=tuple(machines), devices=devices)


def install_nvidia_smi(folder: Path, monkeypatch, script: str) -> None:
    (folder / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def built(text: str) -> Cluster:
    return build_cluster(fit(ClusterFile, yaml.safe_load(text), "detected"), "detected")


def test_cards_are_in_order_of_their_index():
    text = "1, NVIDIA A100-SXM4-40GB, 40960, Enabled\n0, NVIDIA A100-SXM4-40GB, 40960, Disabled\n"
    assert [(card.index, card.is_divided) for card in parse_cards(text)] == [(0, False), (1, True)]


def test_card_without_mig_is_not_divided():
    assert parse_cards("0, NVIDIA H100 80GB HBM3, 81559, [N/A]\n") == (H100,)


@pytest.mark.parametrize(
    "line", ["No devices were found", "0, H100, 81559", "0, H100, [N/A], Disabled", "x, H100, 1, y"]
)
def test_unexpected_answer_is_refused(line):
    with pytest.raises(InputError, match="unexpected answer of nvidia-smi"):
        parse_cards(line)


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA A100-SXM4-40GB", "a100"),
        ("Tesla V100-SXM2-16GB", "v100"),
        ("Tesla K80", "k80"),
        ("Tesla T4", "t4"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA GH200 480GB", "gh200"),
        ("NVIDIA GeForce RTX 3090", "rtx3090"),
        ("NVIDIA GeForce RTX 4070 Ti", "rtx4070ti"),
        ("NVIDIA RTX A6000", "rtxa6000"),
        ("NVIDIA TITAN", "titan"),
    ],
)
def test_model_of_a_product(name, model):
    assert Card(index=0, name=name, memory_mb=1).model == model


def test_machine_without_nvidia_smi_has_unknown_cards(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert read_cards() is None


def test_failing_nvidia_smi_is_reported(tmp_path, monkeypatch):
    install_nvidia_smi(
        tmp_path, monkeypatch, "echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18"
    )
    with pytest.raises(InputError, match=r"nvidia-smi fails.*version mismatch.*check the driver"):
        read_cards()


def test_detected_cluster_has_the_cards_of_the_machine():
    found = built(cluster_file(cards(4), host="lab", cores=16))
    assert [(m.machine_id, m.slots, m.device, m.cpus) for m in found.machines] == [("gpu-00", (4,), "h100", 16)]
    assert found.devices["h100"].has_card and found.devices["h100"].memory_mb == 81559


def test_cpu_nodes_share_the_cores_that_cards_leave():
    found = built(cluster_file(cards(2), host="lab", cores=16, cpu_nodes=3))
    assert [(m.machine_id, m.cpus) for m in found.machines] == [
        ("gpu-00", 4), ("cpu-00", 4), ("cpu-01", 4), ("cpu-02", 4),
    ]  # fmt: skip


def test_cards_of_several_models_are_one_type():
    text = cluster_file([H100, Card(index=1, name="NVIDIA L4", memory_mb=23034)], host="lab", cores=2)
    assert built(text).devices["gpu"].memory_mb == 23034
    assert "# They are of several models" in text


@pytest.mark.parametrize("cpu_nodes", [-1, 4])
def test_cpu_nodes_without_cores_are_refused(cpu_nodes):
    with pytest.raises(InputError, match=rf"does not fit: {cpu_nodes}; of 4 cores"):
        cluster_file(cards(1), host="lab", cores=4, cpu_nodes=cpu_nodes)


def test_machine_without_cards_has_no_cluster_file():
    with pytest.raises(InputError, match="nvidia-smi shows no cards"):
        cluster_file((), host="lab", cores=4)


def test_cpu_nodes_and_emulated_machines_have_no_cards():
    assert machine_with_cards(cluster()) is None


def test_cluster_with_cards_on_two_machines_is_refused():
    found = machine_with_cards(cluster("real"))
    assert found is not None and found.machine_id == "real"
    with pytest.raises(InputError, match="cards of one machine only"):
        machine_with_cards(cluster("real", "other"))


def test_fewer_cards_than_the_cluster_file_gives_are_refused():
    machine = cluster("real", gpus=4).machine("real")
    check_cards(machine, cards(4))
    with pytest.raises(InputError, match=r"gives 4 GPUs to real, and nvidia-smi shows fewer: 3;.*themis rm detect"):
        check_cards(machine, cards(3))


def test_divided_card_is_refused_if_the_cluster_file_uses_it():
    some = [*cards(2), Card(index=2, name=H100.name, memory_mb=1, is_divided=True)]
    check_cards(cluster("real", gpus=2).machine("real"), some)
    with pytest.raises(InputError, match=r"MIG is on.*\[2\]"):
        check_cards(cluster("real", gpus=3).machine("real"), some)


def test_local_engine_checks_cards_before_it_starts(tmp_path, monkeypatch):
    install_nvidia_smi(tmp_path, monkeypatch, "echo '0, Tesla T4, 15360, [N/A]'")
    assert asyncio.run(LocalEngine(cluster("real", gpus=1)).open()).gpus == 4
    with pytest.raises(InputError, match="gives 2 GPUs to real"):
        asyncio.run(LocalEngine(cluster("real", gpus=2)).open())


def test_local_engine_without_nvidia_smi_starts_with_a_warning(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("PATH", str(tmp_path))
    asyncio.run(LocalEngine(cluster("real")).open())
    assert "the 2 GPUs of real are not checked" in caplog.text
