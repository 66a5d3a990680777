"""The archive of our packages for the nodes."""

import io
import subprocess
import sys
import zipfile

from rm_plugin.engines.yarn_package import PACKAGES, package_bytes, package_digest


def test_archive_has_packages_of_app_masters_and_tasks_only(tmp_path):
    with zipfile.ZipFile(io.BytesIO(package_bytes())) as archive:
        names = archive.namelist()
        archive.extractall(tmp_path)
    assert {name.split("/")[0] for name in names} == set(PACKAGES)
    assert {"am/main.py", "tf_jobs/tables/SOURCES.md", "themis/hadoop/pom.xml", "themis/process_guard.py"} <= set(names)
    code = (
        "import sys, am.main, am.runtimes.remote.task_host, tf_jobs.replay; print(am.main.__file__, am.main.__cached__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd="/",
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    source, compiled = done.stdout.split()
    assert source == str(tmp_path / "am" / "main.py")
    # What is unpacked has other times than what was compiled, and is used all the same.
    assert compiled == str(tmp_path / "am" / "__pycache__" / f"main.{sys.implementation.cache_tag}.pyc")
    before = (tmp_path / "am" / "__pycache__" / f"main.{sys.implementation.cache_tag}.pyc").read_bytes()
    (tmp_path / "am" / "main.py").touch()
    subprocess.run(
        [sys.executable, "-c", code], cwd="/", env={"PYTHONPATH": str(tmp_path)}, check=True, capture_output=True
    )
    assert (tmp_path / "am" / "__pycache__" / f"main.{sys.implementation.cache_tag}.pyc").read_bytes() == before


def test_archive_name_depends_on_files_only():
    assert package_digest() == package_digest()
