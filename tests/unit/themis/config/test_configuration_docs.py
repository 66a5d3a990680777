"""docs/reference/configuration.md lists every key of every schema, with its default and meaning, and no other."""

import re
from enum import Enum
from pathlib import Path

import pytest
from pydantic_core import PydanticUndefined

from rm_plugin.policies.registry import POLICIES
from rm_plugin.solvers.registry import SOLVERS
from themis.choices import LeaseEnds
from themis.config.cluster_file import ClusterFile
from themis.config.group_file import GroupFile
from themis.config.loader import Section
from themis.config.rm_settings import AuctionSettings, RmSettings
from themis.config.tuner_settings import TUNERS
from themis.config.validation_errors import models_in

DOCUMENT = Path(__file__).resolve().parents[4] / "docs" / "reference" / "configuration.md"
SCHEMAS = {"settings": RmSettings, "cluster": ClusterFile, "group": GroupFile}
ROW = re.compile(r"\| `([^`]+)` \| (.+?) \| (.+?) \|")


def shown(value):
    """A default as the document writes it: as YAML would have it, in code."""
    if value is PydanticUndefined:
        return "required"
    if value is None or value in ("", (), {}):
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, float):
        return f"`{value:g}`"
    return f"`{value.value if isinstance(value, Enum) else value}`"


def keys_of(model, prefix=""):
    """(key, default, description) of every key, sections opened; `[]` marks lists, `NAME` the user's own names.

    A required section is listed too: its keys do not show that it is required.
    """
    for name, entry in model.model_fields.items():
        key = prefix + name
        sections = models_in(entry.annotation)
        opened = [section for section in sections if issubclass(section, Section)]
        if opened:
            text = str(entry.annotation)
            if entry.is_required():
                yield key, "required", entry.description
            mark = ".NAME" if "dict[" in text else "[]" if "tuple[" in text else ""
            for section in opened:
                yield from keys_of(section, f"{key}{mark}.")
        else:
            default = "computed" if entry.default_factory is not None else shown(entry.default)
            yield key, default, entry.description


def documented(section):
    text = DOCUMENT.read_text(encoding="utf-8")
    body = re.search(rf"<!-- keys of {section} -->\n(.*?)\n<!-- end -->", text, flags=re.S)
    assert body is not None, f"docs/reference/configuration.md has no table of {section}"
    return [match.groups() for line in body[1].splitlines() if (match := ROW.fullmatch(line))]


@pytest.mark.parametrize("section", sorted(SCHEMAS))
def test_every_key_is_documented_with_its_default_and_nothing_else_is(section):
    assert [(key, default) for key, default, _ in documented(section)] == [
        (key, default) for key, default, _ in keys_of(SCHEMAS[section])
    ]


@pytest.mark.parametrize("section", sorted(SCHEMAS))
def test_every_key_has_a_meaning_and_it_is_the_schemas_own(section):
    described = {key: description for key, _, description in keys_of(SCHEMAS[section])}
    for key, _, meaning in documented(section):
        assert meaning.strip()
        if described[key]:
            assert described[key] in meaning, key


def test_every_setting_of_every_tuner_is_documented():
    expected = [
        (f"{name}.{key}", entry.help) for name, tuner in TUNERS.items() for key, entry in tuner.settings.items()
    ]
    assert [(key, meaning) for key, _, meaning in documented("tuner")] == expected


def test_every_name_that_a_key_may_take_is_listed():
    meanings = {key: meaning for key, _, meaning in documented("settings")}
    names = {"policy": list(POLICIES), "auction.solver": list(SOLVERS)}
    for key in ("empty_bundle", "bundle_rule", "rounding"):
        names[f"auction.{key}"] = list(AuctionSettings.model_fields[key].annotation)
    names["lease.ends"] = list(LeaseEnds)
    for key, known in names.items():
        for name in known:
            assert f"`{name}`" in meanings[key], key
