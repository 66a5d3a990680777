"""Whether processes live."""

import psutil


def is_alive(pid):
    """Whether a process of this id exists and is no zombie."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
