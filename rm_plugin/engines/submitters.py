"""As which system user an app runs with the engine `local`: its submitter, or the user of the service.

The folder of an app records its user. So an app goes on as whom it began, also after a change of `run_as` or a restart:
what runs as one user must neither write through another user's links nor find its own checkpoints closed.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import stat
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import grpc

import themis
from themis.accounts import Account
from themis.choices import RunAs
from themis.config.rm_settings import RmSettings
from themis.errors import InputError, UnreachableError
from themis.files import let_others_pass

_NOGROUP = 65_534
"""The group of a user without an account: a group without members that owns no files."""
_MAX_UID = 2**32 - 2

_CAPABILITIES = {"CHOWN": 0, "DAC_OVERRIDE": 1, "FOWNER": 3, "KILL": 5, "SETGID": 6, "SETUID": 7, "SYS_PTRACE": 19}
"""What root needs (capabilities(7)): containers often lack the last, without which no environment can be read."""

_INHERITED = frozenset(("PATH", "LANG", "LANGUAGE", "TZ", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "JAVA_HOME"))
_HADOOP = frozenset(("HADOOP_HOME", "HADOOP_CONF_DIR", "HADOOP_CLASSPATH"))
"""By name: others are secrets (`HADOOP_CREDSTORE_PASSWORD`), or the service's identity (`HADOOP_USER_NAME`)."""
_INHERITED_PREFIXES = (
    "LC_",
    "CUDA_",
    "NVIDIA_",
    "NCCL_",
    "TF_CPP_",
    "TF_GPU_",
    "TF_XLA_",
    "TF_ENABLE_",
    "XLA_",
    "OMP_",
)


class Submitters:
    """Finds the user of each app, and gives it its folder.

    Args:
        apps: The folder of all apps' folders; None if every app runs as the service.
        obstacle: Why apps cannot run as their submitters; empty if new ones shall.
        required: Whether an app is refused whose submitter has no account on this machine.
    """

    def __init__(self, apps: Path | None = None, *, obstacle: str = "", required: bool = False) -> None:
        self._apps = apps
        self._obstacle = obstacle
        self._required = required

    @classmethod
    def of(cls, settings: RmSettings) -> Submitters:
        """Return what the settings and this machine allow. Raises InputError if `run_as: submitter` is impossible."""
        files_dir = settings.files_dir.absolute()
        standby = "a standby may number users otherwise" if settings.standby.enabled else ""
        # Then no folder of an app says as whom it runs.
        impossible = standby or _no_owners(files_dir)
        if settings.run_as is RunAs.SERVICE:
            obstacle = "run_as is service"
        else:
            obstacle = impossible or _missing_capabilities() or _closed_to_others(files_dir)
        required = settings.run_as is RunAs.SUBMITTER
        if required and obstacle:
            remedy = "remove the obstacle, or set `run_as: service`"
            raise InputError("run_as: apps cannot run as their submitters", value=obstacle, remedy=remedy)
        if not obstacle:
            _make_parents(files_dir)
        return cls(None if impossible else files_dir / "apps", obstacle=obstacle, required=required)

    def describe(self) -> str:
        """Return what the log says at the start."""
        service = _service_name()
        if self._obstacle:
            return f"app masters and tasks run as {service}, the user of this service: {self._obstacle}"
        others = "are refused" if self._required else f"run as {service} (`run_as: submitter` refuses them)"
        return f"app masters and tasks run as the users who submitted them; those of users without an account {others}"

    def check(self, user: str) -> None:
        """Raise InputError if no app of this user can run here."""
        if self._required and find_account(user) is None:
            remedy = "ask an administrator for an account there, or for `run_as: service`"
            raise InputError("run_as: the user has no account on the machine of the service", value=user, remedy=remedy)

    def prepare(self, user: str, folder: Path) -> Account | None:
        """Return as whom an app runs, and give it its folder; None for the user of the service.

        Raises:
            InputError: The folder is another user's.
            UnreachableError: The user has no account now, but had one when the app was submitted or began.
            OSError: The folder cannot be made.
        """
        if self._apps is None:
            return None
        account, own, owner = find_account(user), os.geteuid(), _owner(folder)
        if account is None and (self._required or owner not in (None, own)):
            # A directory service that is down looks the same as a user without an account.
            raise UnreachableError("the user's account is not found on the machine of the service", value=user)
        if account is not None and account.uid == own:
            account = None
        is_service = owner == own or (owner is None and (account is None or bool(self._obstacle)))
        if is_service and not (self._required and account is not None):
            return None
        if account is None or owner not in (None, account.uid):
            what = f"the folder of an app of {user} belongs to the user with the number {owner}"
            raise InputError(what, value=str(folder), remedy="submit the app again")
        self._give(folder, account)
        return account

    def uid_of(self, app_id: str) -> int | None:
        """Return the number of the user as whom an app began, or None for our own."""
        if self._apps is None:
            return None
        try:
            return _facts(self._apps / app_id).st_uid
        except (OSError, InputError):
            return None

    def _give(self, folder: Path, account: Account) -> None:
        apps = folder.parent
        apps.mkdir(parents=True, exist_ok=True)
        for each in (apps.parent, apps):
            let_others_pass(each)
        folder.mkdir(mode=0o700, exist_ok=True)
        os.chown(folder, account.uid, account.gid, follow_symlinks=False)


def find_account(user: str) -> Account | None:
    """Return the account of a user by name, or None if there is none.

    A local user without a name goes by its number (`user_name`). It has only the group `nogroup` here.
    """
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        return _nameless(user)
    groups = tuple(os.getgrouplist(entry.pw_name, entry.pw_gid))
    return Account(name=user, uid=entry.pw_uid, gid=entry.pw_gid, groups=groups, home=entry.pw_dir)


def submitter_environment(environment: Mapping[str, str], account: Account, folder: Path) -> dict[str, str]:
    """Return what an app master inherits that runs as another user. The service's other variables may be secrets.

    The home folder of a user without one is the app's folder.
    """
    inherited = {
        name: value
        for name, value in environment.items()
        if name in _INHERITED | _HADOOP or name.startswith(_INHERITED_PREFIXES)
    }
    home = account.home or str(folder)
    return {**inherited, "HOME": home, "USER": account.name, "LOGNAME": account.name, "SHELL": "/bin/sh"}


def _nameless(user: str) -> Account | None:
    # `0500` is not the number 500: a user of the network may be called so.
    number = int(user) if user.isascii() and user.isdigit() and len(user) <= 10 else 0
    if str(number) != user or not 0 < number <= _MAX_UID:
        return None
    with contextlib.suppress(KeyError):
        # This user goes by its name. So the number is the name of a user of the network.
        pwd.getpwuid(number)
        return None
    # Named, as Python 3.12.0 leaves root its groups if there are none to set (CVE-2023-6507).
    return Account(name=user, uid=number, gid=_NOGROUP, groups=(_NOGROUP,))


def _owner(folder: Path) -> int | None:
    """The number of the user whom an app's folder belongs to, or None if the app has written nothing there yet."""
    try:
        facts = _facts(folder)
    except FileNotFoundError:
        return None
    is_new = facts.st_uid == os.geteuid() and not any(folder.iterdir())
    return None if is_new else facts.st_uid


def _facts(folder: Path) -> os.stat_result:
    """What the file system says of an app's folder. A mount there, such as FUSE, could say that it is root's."""
    facts = folder.lstat()
    if not stat.S_ISDIR(facts.st_mode) or facts.st_dev != folder.parent.stat().st_dev:
        raise InputError("the folder of the app is none, or a mount", value=str(folder), remedy="move it away")
    return facts


def _no_owners(files_dir: Path) -> str:
    """Why the owners of files below this folder say nothing here; empty if they do."""
    if os.geteuid() != 0:
        return "it is not root"
    foreign = [each for each in (files_dir, files_dir / "apps") if each.exists() and each.stat().st_uid != 0]
    return f"{foreign[0]} does not belong to root" if foreign else ""


def _missing_capabilities() -> str:
    """Which rights root lacks that it needs to start processes of other users, and to end them; empty if none."""
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    effective = int(next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")), 16)
    missing = [f"CAP_{name}" for name, bit in _CAPABILITIES.items() if not effective >> bit & 1]
    return f"root lacks {', '.join(missing)} here" if missing else ""


def _closed_to_others(files_dir: Path) -> str:
    """Which folder or file other users cannot use, but need; empty if there is none."""
    needed = [Path(sys.executable), Path(sys.executable).resolve(), *map(Path, _module_files())]
    for file in needed:
        for path, right in ((file, stat.S_IROTH), *((folder, stat.S_IXOTH) for folder in file.parents)):
            if not path.stat().st_mode & right:
                return f"other users cannot read {file}, because of {path}"
    # The folder itself is opened for the first app of another user.
    for folder in files_dir.parents:
        if folder.exists() and not folder.stat().st_mode & stat.S_IXOTH:
            return f"other users cannot reach {files_dir}, because of {folder}"
    return ""


def _make_parents(files_dir: Path) -> None:
    """Make the missing folders above the state so that others can pass. Otherwise they would become private."""
    for folder in reversed([each for each in files_dir.parents if not each.exists()]):
        folder.mkdir()
        folder.chmod(0o711)


def _module_files() -> Iterator[str]:
    for module in (os, themis, grpc):
        assert module.__file__ is not None
        yield module.__file__


def _service_name() -> str:
    with contextlib.suppress(KeyError):
        return pwd.getpwuid(os.geteuid()).pw_name
    return str(os.geteuid())
