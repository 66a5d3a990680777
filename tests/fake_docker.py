"""A Docker engine in memory, as far as `themis.docker_host` uses the SDK: containers that have a state and no more."""

from __future__ import annotations

import itertools
import queue
from types import SimpleNamespace

from docker.errors import APIError, ImageNotFound, NotFound
from requests import ConnectionError as NobodyAnswers


def api_error(status, explanation):
    """What the SDK raises when the engine answers with this status."""
    return APIError(explanation, SimpleNamespace(status_code=status, reason="", url=""), explanation)


class FakeContainer:
    """One container. `create` holds what it was made with."""

    def __init__(self, engine, container_id, create):
        self.engine = engine
        self.id = container_id
        self.create = create
        self.state = {"Status": "created", "Running": False, "Pid": 0, "ExitCode": 0, "OOMKilled": False}

    @property
    def attrs(self):
        return {"State": self.state}

    def start(self):
        if self.engine.refuse_start:
            raise api_error(500, self.engine.refuse_start)
        self.state |= {"Status": "running", "Running": True, "Pid": 1000 + int(self.id)}

    def reload(self):
        pass

    def end(self, exit_code, *, out_of_memory=False, tell=True):
        """End the container, without an event if `tell` is false."""
        self.state |= {"Status": "exited", "Running": False, "ExitCode": exit_code, "OOMKilled": out_of_memory}
        if tell:
            self.engine.news.put(self.id)


class FakeNetwork:
    def __init__(self, engine, name, labels, configuration):
        self.engine, self.name, self.labels = engine, name, labels
        self.attrs = {"IPAM": {"Config": [configuration]}}

    def reload(self):
        pass

    def remove(self):
        self.engine.made_networks.remove(self)


class _Containers:
    """What the SDK calls `client.containers`, to make one, and `client.api.containers()`, the list."""

    def __init__(self, engine):
        self._engine = engine

    def create(self, **create):
        return self._engine.make(create)

    def __call__(self, **wanted):
        return self._engine.listed(**wanted)


class FakeDocker:
    """The engine and the SDK's client of it in one. Set `refuse_start` to have no container start."""

    def __init__(self):
        self.refuse_start = ""
        self.away = False
        self.news = queue.Queue()
        self.boxes = {}
        self.made = []
        self.made_networks = []
        self.images_there = {"image"}
        self._numbers = itertools.count(1)
        self.api = self
        self.images = SimpleNamespace(get=self._image)
        self.networks = SimpleNamespace(list=self._list_networks, create=self._create_network)
        self.containers = _Containers(self)

    def close(self):
        pass

    # ---- containers ----

    def make(self, create):
        self._answer()
        if any(box.create["name"] == create["name"] for box in self.boxes.values()):
            raise api_error(409, "the name is in use")
        box = FakeContainer(self, str(next(self._numbers)), create)
        self.boxes[box.id] = box
        self.made.append(box)
        return box

    def listed(self, *, all, filters):  # noqa: A002
        assert all
        self._answer()
        return [
            {"Id": box.id, "Labels": box.create["labels"], "State": box.state["Status"]}
            for box in self.boxes.values()
            if _matches(box.create["labels"], filters)
        ]

    def inspect_container(self, container_id):
        self._answer()
        return {"State": dict(self._box(container_id).state)}

    def kill(self, container_id):
        self._answer()
        box = self._box(container_id)
        if not box.state["Running"]:
            raise api_error(409, "it is not running")
        box.end(137)

    def remove_container(self, container_id, *, force, v):
        assert force
        assert v
        self._answer()
        self._box(container_id)
        del self.boxes[container_id]
        self.news.put(container_id)

    def logs(self, container_id, *, tail):
        self._box(container_id)
        return b"its last words\n"

    def events(self, *, filters, decode):
        assert decode
        assert filters["event"] == ["die", "destroy"]
        while (container_id := self.news.get()) is not None:
            yield {"Actor": {"ID": container_id}}

    def _box(self, container_id):
        if container_id not in self.boxes:
            raise NotFound("no such container")
        return self.boxes[container_id]

    def _answer(self):
        if self.away:
            raise NobodyAnswers("nobody answers")

    # ---- images and networks ----

    def _image(self, name):
        if name not in self.images_there:
            raise ImageNotFound("no such image")

    def _list_networks(self, *, names=(), filters=None):
        found = self.made_networks
        if names:
            # The engine finds by a part of the name.
            found = [each for each in found if any(name in each.name for name in names)]
        return [each for each in found if filters is None or _matches(each.labels, filters)]

    def _create_network(self, name, *, driver, labels, configuration=None):
        assert driver == "bridge"
        network = FakeNetwork(self, name, labels, configuration or {"Subnet": "172.20.0.0/16", "Gateway": "172.20.0.1"})
        self.made_networks.append(network)
        return network


def _matches(labels, filters):
    return all(f"{labels.get(name)}" == value for name, _, value in (each.partition("=") for each in filters["label"]))
