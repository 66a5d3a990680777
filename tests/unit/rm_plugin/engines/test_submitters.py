"""As whom an app runs: by its submitter, the settings, the machine, and the folder in which it began."""

import os
import pwd
import stat
from pathlib import Path

import pytest
from other_users import ANN, BOB, only_root
from pydantic import ValidationError

from rm_plugin.engines import submitters
from rm_plugin.engines.submitters import Submitters, find_account, submitter_environment
from themis.accounts import Account
from themis.choices import RunAs
from themis.config.rm_settings import RmSettings, StandbySettings
from themis.errors import InputError, UnreachableError

OWN = pwd.getpwuid(os.geteuid()).pw_name


def settings(tmp_path: Path, **changes: object) -> RmSettings:
    return RmSettings(**{"cluster": Path("testbed-64"), "state_dir": tmp_path / "state", **changes})


@pytest.fixture
def usable(monkeypatch):
    """A machine on which other users can use everything."""
    monkeypatch.setattr(submitters, "_closed_to_others", lambda files_dir: "")


def test_account_of_a_name_has_its_groups() -> None:
    account = find_account("daemon")
    assert account is not None
    entry = pwd.getpwnam("daemon")
    assert (account.uid, account.gid, account.home) == (entry.pw_uid, entry.pw_gid, entry.pw_dir)
    assert entry.pw_gid in account.groups


def test_number_without_a_name_has_no_other_group() -> None:
    assert find_account(str(ANN)) == Account(name=str(ANN), uid=ANN, gid=65_534, groups=(65_534,))


@pytest.mark.parametrize("user", ["0", "1", "-5", "0054321", "٥٤", "4294967295", "99999999999", "", "nobody-here"])
def test_no_account_by_a_number_that_has_a_name_or_by_an_unknown_name(user: str) -> None:
    assert find_account(user) is None


def test_service_that_is_not_root_runs_apps_itself_and_says_so(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: ANN)
    found = Submitters.of(settings(tmp_path))
    assert found.describe() == f"app masters and tasks run as {ANN}, the user of this service: it is not root"
    assert found.prepare("daemon", tmp_path / "apps/app-0001") is None
    with pytest.raises(InputError, match="cannot run as their submitters: 'it is not root'"):
        Submitters.of(settings(tmp_path, run_as=RunAs.SUBMITTER))


@only_root
def test_root_without_a_capability_runs_apps_itself(tmp_path: Path, usable, monkeypatch) -> None:
    monkeypatch.setitem(submitters._CAPABILITIES, "FOR_A_TEST", 63)
    assert Submitters.of(settings(tmp_path)).describe().endswith("root lacks CAP_FOR_A_TEST here")


def test_folder_that_others_cannot_pass_is_named(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(submitters.sys, "executable", "/bin/sh")
    monkeypatch.setattr(submitters, "_module_files", lambda: iter(["/bin/sh"]))
    tmp_path.chmod(0o700)
    closed = submitters._closed_to_others(tmp_path / "state")
    assert closed.startswith(f"other users cannot reach {tmp_path / 'state'}, because of /tmp/")


@only_root
def test_app_begins_as_its_submitter_and_goes_on_as_whom_it_began(tmp_path: Path, usable) -> None:
    ann = find_account(str(ANN))
    found = Submitters.of(settings(tmp_path))
    assert "run as the users who submitted them" in found.describe()
    folder = tmp_path / "state/apps/app-0001"
    for _ in range(2):
        assert found.prepare(str(ANN), folder) == ann
    assert (folder.stat().st_uid, stat.S_IMODE(folder.stat().st_mode)) == (ANN, 0o700)
    assert found.uid_of("app-0001") == ANN
    # The service would write through links of ann's.
    off = Submitters.of(settings(tmp_path, run_as=RunAs.SERVICE))
    assert off.prepare(str(ANN), folder) == ann
    with pytest.raises(InputError, match=f"belongs to the user with the number {ANN}"):
        found.prepare(str(BOB), folder)

    own = tmp_path / "state/apps/app-0002"
    assert off.prepare(str(ANN), own) is None
    own.mkdir()
    assert found.uid_of("app-0002") == 0
    # Nothing of it was written: it has not begun.
    assert found.prepare(str(ANN), own) == ann
    own.chmod(0o700)
    began = tmp_path / "state/apps/app-0003"
    began.mkdir()
    (began / "journal.jsonl").touch()
    assert found.prepare(str(ANN), began) is None
    with pytest.raises(InputError, match="belongs to the user with the number 0"):
        Submitters.of(settings(tmp_path, run_as=RunAs.SUBMITTER)).prepare(str(ANN), began)


@only_root
def test_user_without_an_account_is_refused_only_if_the_settings_say_submitter(tmp_path: Path, usable) -> None:
    required = Submitters.of(settings(tmp_path, run_as=RunAs.SUBMITTER))
    assert "those of users without an account are refused" in required.describe()
    with pytest.raises(InputError, match="no account"):
        required.check("nobody-here")
    required.check(OWN)
    assert required.prepare(OWN, tmp_path / "app-0001") is None
    assert Submitters.of(settings(tmp_path)).prepare("nobody-here", tmp_path / "app-0001") is None


@only_root
def test_start_waits_while_the_account_of_a_user_cannot_be_looked_up(tmp_path: Path, usable, monkeypatch) -> None:
    found = Submitters.of(settings(tmp_path))
    folder = tmp_path / "state/apps/app-0001"
    found.prepare(str(ANN), folder)
    monkeypatch.setattr(submitters, "find_account", lambda user: None)
    with pytest.raises(UnreachableError, match="not found"):
        found.prepare(str(ANN), folder)
    required = Submitters.of(settings(tmp_path, run_as=RunAs.SUBMITTER))
    with pytest.raises(UnreachableError, match="not found"):
        required.prepare(str(ANN), tmp_path / "state/apps/app-0002")


def test_owner_that_a_mount_reports_is_not_believed() -> None:
    with pytest.raises(InputError, match="or a mount"):
        submitters._owner(Path("/proc"))
    assert Submitters(Path("/")).uid_of("proc") is None


@only_root
def test_way_to_an_app_opens_nothing_that_was_closed(tmp_path: Path, usable) -> None:
    state = tmp_path / "state"
    (state / "apps/app-0001").mkdir(parents=True)
    state.chmod(0o700)
    for path in (state / "themis.yaml", state / "apps/app-0001/journal.jsonl"):
        path.touch(0o644)
    (state / "apps/app-0001").chmod(0o755)
    (state / "apps").chmod(0o700)
    Submitters.of(settings(tmp_path)).prepare(str(ANN), state / "apps/app-0002")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (state, *state.glob("*"), *state.glob("apps/*"))}
    assert modes == {"state": 0o711, "apps": 0o711, "themis.yaml": 0o600, "app-0001": 0o700, "app-0002": 0o700}


def test_submitter_inherits_no_secret_of_the_service() -> None:
    environment = {"PATH": "/bin", "AWS_SECRET": "x", "HOME": "/root", "LC_ALL": "C", "THEMIS_TOKEN": "t"}
    environment |= {"HADOOP_USER_NAME": "themis", "HADOOP_CREDSTORE_PASSWORD": "x", "TF_TOKEN_example_org": "x"}
    account = Account(name="ann", uid=ANN, gid=ANN, home="/home/ann")
    assert submitter_environment(environment, account, Path("/app")) == {
        "PATH": "/bin",
        "LC_ALL": "C",
        "HOME": "/home/ann",
        "USER": "ann",
        "LOGNAME": "ann",
        "SHELL": "/bin/sh",
    }


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"engine": "docker"}, "docker.user"),
        ({"engine": "yarn"}, "yarn.as_submitter"),
        ({"standby": StandbySettings(enabled=True, folder=Path("shared"))}, "with a standby"),
    ],
)
def test_setting_is_refused_where_it_cannot_hold(tmp_path: Path, changes, words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        settings(tmp_path, run_as=RunAs.SUBMITTER, **changes)


@only_root
def test_standby_leaves_apps_with_the_service_whoever_its_folders_belong_to(tmp_path: Path, usable) -> None:
    shared = StandbySettings(enabled=True, folder=tmp_path)
    found = Submitters.of(settings(tmp_path, standby=shared))
    assert "standby" in found.describe()
    folder = tmp_path / "apps/app-0001"
    folder.mkdir(parents=True)
    os.chown(folder, BOB, BOB)
    assert found.prepare(str(ANN), folder) is None and found.uid_of("app-0001") is None


@only_root
def test_state_of_another_user_leaves_apps_with_the_service(tmp_path: Path, usable) -> None:
    state = tmp_path / "state"
    state.mkdir()
    os.chown(state, BOB, BOB)
    assert Submitters.of(settings(tmp_path)).describe().endswith(f"{state} does not belong to root")
    with pytest.raises(InputError, match="does not belong to root"):
        Submitters.of(settings(tmp_path, run_as=RunAs.SUBMITTER))
