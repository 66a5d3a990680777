"""docs/how-to/audit.md holds every option with its default, every family, property and measure."""

import argparse

from documents import code, table_rows

from rm_plugin.solvers.brute_force import BruteForceSolver
from themis_cli.audit_command import add_to
from themis_lab.audit.allox import properties as allox_properties
from themis_lab.audit.case import Case, Mechanism
from themis_lab.audit.families import FAMILIES, family
from themis_lab.audit.measures.registry import MEASURES
from themis_lab.audit.oef import properties as oef_properties
from themis_lab.audit.properties.registry import PROPERTIES

PAGE = "docs/how-to/audit.md"


def names(head):
    return [name for row in table_rows(PAGE, head) for name in code(row[0])]


def test_options_are_all_there():
    parser = argparse.ArgumentParser()
    add_to(parser.add_subparsers())
    (group,) = parser._subparsers._group_actions
    options = {option.option_strings[-1]: option.default for option in group.choices["audit"]._actions}
    del options["--help"]
    assert names("option") == list(options)
    for row in table_rows(PAGE, "option"):
        for default in code(row[1]):
            assert default == str(options[code(row[0])[0]])


def test_families_and_properties_are_all_there_in_order():
    assert names("family") == list(FAMILIES)
    assert names("property") == list(PROPERTIES)


def test_measures_are_all_there():
    case = Case(family("tiny").market(1, 4), Mechanism(make_solver=BruteForceSolver))
    found = {sample.measure for measure in MEASURES.values() for sample in measure(case)}
    assert set(names("measure")) == found


def test_checks_of_oef_are_all_there_in_order():
    assert names("check of OEF") == list(oef_properties.PROPERTIES)
    assert names("claim of OEF's paper") == list(oef_properties.CLAIMS)


def test_checks_of_allox_are_all_there_in_order():
    assert names("check of AlloX") == list(allox_properties.PROPERTIES)
