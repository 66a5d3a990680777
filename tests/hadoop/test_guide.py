"""The commands of docs/how-to/hadoop.md, with one terminal for the service and another for the rest."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import yaml
from documents import ROOT, block, blocks, commands, missing
from free_ports import free_port
from waiting import wait_until

PAGE = "docs/how-to/hadoop.md"


def printed_by(line, folder, environment):
    """What a command prints, typed in that folder; one that fails fails the test."""
    done = subprocess.run(
        line, shell=True, cwd=folder, env=environment, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_the_guide_from_its_first_command_to_its_last(hadoop_programs, tmp_path):
    first, second = (commands(block) for block in blocks(PAGE, "console") if block.mark == "guide")
    start, serve = first
    shutil.copytree(ROOT / "conf", tmp_path / "conf")
    address = f"127.0.0.1:{free_port('127.0.0.1')}"
    with (tmp_path / "conf" / "themis-yarn.yaml").open("a") as settings:
        # The guide sets no port, and the default one may be in use here.
        settings.write(f"listen: {address}\n")
    _, jars = hadoop_programs
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "THEMIS_HADOOP_JARS": str(jars), "THEMIS_RM": address}

    def run(command):
        printed = printed_by(command.line, tmp_path, environment)
        line = missing(command.shown, printed)
        assert line is None, f"shown, but not printed: {line}\n{printed}"
        return printed

    service = None
    try:
        run(start)
        with (tmp_path / "rm.log").open("wb") as log:
            service = subprocess.Popen(
                serve.line, shell=True, cwd=tmp_path, env=environment, stdout=log, stderr=log, start_new_session=True
            )
        wait_until((tmp_path / "out/rm-yarn/address").exists)
        shown = [run(command) for command in second[:-1]]
        assert "replay-pair" in shown[1] and "FINISHED" in shown[1]
        assert "replay-pair" in shown[2] and "SUCCEEDED" in shown[2]
        os.killpg(service.pid, signal.SIGTERM)
        service.wait(60)
    finally:
        if service is not None and service.poll() is None:
            os.killpg(service.pid, signal.SIGKILL)
            service.wait()
        run(second[-1])


def test_guide_commands_work_on_an_existing_cluster(cluster, tmp_path):
    """With this cluster's places for those that the guide supposes: addresses, queue, interpreter, configuration."""
    address = f"127.0.0.1:{free_port('127.0.0.1')}"
    settings = yaml.safe_load(block(PAGE, "site settings").body)
    assert (settings.pop("advertise"), settings["yarn"]["user"]) == ("themis.example.org", "themis")
    settings |= {"listen": address, "page": "127.0.0.1:0"}
    settings["yarn"] |= {"queue": "default", "python": sys.executable, "emulated": True}
    (tmp_path / "themis.yaml").write_text(yaml.safe_dump(settings))
    shutil.copy(ROOT / "conf/apps/replay-pair.yaml", tmp_path / "group.yaml")
    path = os.pathsep.join((str(Path(sys.executable).parent), str(cluster.bin_dir), os.environ["PATH"]))
    environment = {**os.environ, **cluster.exports, "PATH": path}

    def line(mark):
        (only,) = block(PAGE, mark).body.splitlines()
        return only.replace("/etc/hadoop/conf", str(cluster.conf_dir)).replace("themis.example.org:8650", address)

    printed_by("themis rm init --dir tls --host 127.0.0.1", tmp_path, environment)
    printed_by(line("site storage"), tmp_path, environment)
    with (tmp_path / "rm.log").open("wb") as log:
        service = subprocess.Popen(
            line("site service"),
            shell=True,
            cwd=tmp_path,
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        wait_until((tmp_path / "state/address").exists)
        assert "FINISHED" in printed_by(line("site client"), tmp_path, environment)
    finally:
        os.killpg(service.pid, signal.SIGTERM)
        service.wait(60)
