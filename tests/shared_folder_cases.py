"""A shared folder in memory, whose failures a test controls."""

from rm_plugin.engines.shared_folder import SharedFile
from themis.errors import UnreachableError


class MemoryFolder:
    """A folder in the memory of one process. While `away` is set, every method fails."""

    def __init__(self) -> None:
        self.place = "memory"
        self.away = False
        self._contents: dict[str, bytes] = {}
        self._modified: dict[str, int] = {}
        self._steps = 0

    def list(self) -> tuple[SharedFile, ...]:
        """Return the files, by name."""
        self._step()
        return tuple(SharedFile(name=name, modified=self._modified[name]) for name in sorted(self._contents))

    def read(self, name: str) -> bytes | None:
        """Return the content of a file, or None if it does not exist."""
        self._step()
        return self._contents.get(name)

    def create(self, name: str, content: bytes) -> bool:
        """Create a file. Returns False if a file of this name exists."""
        self._step()
        if name in self._contents:
            return False
        self._contents[name], self._modified[name] = content, self._steps
        return True

    def touch(self, name: str) -> None:
        """Change the time of a file."""
        self._step()
        if name in self._contents:
            self._modified[name] = self._steps

    def delete(self, name: str) -> None:
        """Delete a file, if it exists."""
        self._step()
        self._contents.pop(name, None)

    def tidy(self) -> None:
        """Do nothing: no creation is cut off."""

    def _step(self) -> None:
        if self.away:
            raise UnreachableError("the shared folder is unavailable", value=self.place)
        self._steps += 1
