"""The committed wire code is what its source gives now, and field numbers are used once."""

import importlib.util
from pathlib import Path

import pytest

from themis.wire import themis_pb2 as pb

ROOT = Path(__file__).resolve().parents[4]
GENERATED = ("themis_pb2.py", "themis_pb2.pyi", "themis_pb2_grpc.py")


def load_generator():
    spec = importlib.util.spec_from_file_location("generate_wire", ROOT / "tools" / "generate_wire.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wire")
    assert load_generator().generate(folder) == 0
    return folder


@pytest.mark.parametrize("name", GENERATED)
def test_it_is_up_to_date(fresh, name):
    committed = (ROOT / "themis" / "wire" / name).read_bytes()
    assert (fresh / name).read_bytes() == committed, "run `make wire`"


def test_nothing_else_is_generated(fresh):
    assert sorted(path.name for path in fresh.iterdir()) == sorted(GENERATED)


def test_the_package_carries_its_version():
    assert pb.DESCRIPTOR.package == "themis.v1"
