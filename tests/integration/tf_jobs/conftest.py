"""What tests of real training share."""

import importlib.util
import sys

import pytest
from documents import ROOT


@pytest.fixture(scope="module")
def recorder():
    """The tool that records the curves of docs/explanation/elastic.md, for its gangs."""
    spec = importlib.util.spec_from_file_location("recorder", ROOT / "tools" / "record_elastic_curves.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
