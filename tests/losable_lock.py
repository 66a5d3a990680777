"""A lock that is lost at a moment of a test's choice, as while its holder stands still."""

import math

from rm_plugin.engines.folder_lock import LockLostError


class LosableLock:
    """A HeldLock. `asked` counts the confirmations, of which `left` succeed; by default all do."""

    standbys = ()

    def __init__(self, left=math.inf):
        self.left = left
        self.asked = 0

    def is_fresh(self):
        return self.left > 0

    async def confirm(self):
        self.asked += 1
        self.left -= 1
        if self.left < 0:
            raise LockLostError("another ResourceManager has taken the lock", value="a test")
