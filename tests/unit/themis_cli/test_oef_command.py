"""`themis oef`: its document and table, its options, and its exit codes."""

import io
import json
import sys
from types import SimpleNamespace

import pytest

from rm_plugin.policies.oef.registry import RULES
from themis_cli.main import main

B = {
    "types": ["k80", "v100"],
    "capacity": [1, 1],
    "tenants": [{"id": "u1", "speedup": [1, 2], "weight": 1}, {"id": "u2", "speedup": [1, 5]}],
}


@pytest.fixture
def oef(capsys, tmp_path):
    def run(*arguments, instance=B):
        path = tmp_path / "instance.json"
        path.write_text(json.dumps(instance), encoding="utf-8")
        code = main(["oef", "--instance", str(path), *arguments])
        output = capsys.readouterr()
        return code, output.out, output.err

    return run


def test_the_document_holds_the_fixed_keys(oef):
    code, out, err = oef("--mode", "cooperative", "--json")
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert document["status"] == "optimal"
    assert document["share"] == {"u1": pytest.approx([1, 0.25]), "u2": pytest.approx([0, 0.75])}
    assert document["efficiency"] == pytest.approx({"u1": 1.5, "u2": 3.75})
    assert document["total"] == pytest.approx(5.25)
    assert document["envy"] == 0
    assert document["sharing_incentive"] == pytest.approx({"u1": 1.0, "u2": 1.25})
    assert document["solve_s"] > 0


def test_noncooperative_reports_its_envy(oef):
    document = json.loads(oef("--mode", "noncooperative", "--json")[1])
    assert document["envy"] == pytest.approx(12 / 7)
    assert document["envious"] == {"u2": {"of": "u1", "by": pytest.approx(12 / 7)}}


def test_one_more_device_has_a_worth_for_each(oef):
    assert json.loads(oef("--one-more", "v100", "--json")[1])["one_more"] == pytest.approx({"u1": 1.0, "u2": 2.5})


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_prints_a_table(oef, rule):
    code, out, err = oef("--mode", rule, "--one-more", "k80")
    assert (code, err) == (0, "")
    assert out.startswith("tenant") and f"{rule}, optimal: total efficiency" in out


def test_type_without_devices_has_no_price_but_a_first_device_has_a_worth(oef):
    document = json.loads(oef("--one-more", "v100", "--json", instance=B | {"capacity": [1, 0]})[1])
    assert document["prices"] == {"k80": pytest.approx(1.0), "v100": None}
    assert document["one_more"] == pytest.approx({"u1": 1.0, "u2": 3.25})
    assert oef(instance=B | {"capacity": [1, 0]})[1].endswith("prices: k80 1\n")


def test_warnings_are_shown(oef):
    instance = B | {"tenants": [{"id": "u1", "speedup": [0, 1]}, {"id": "u2", "speedup": [1, 5]}]}
    assert "warning: guarantees are void: u1" in oef(instance=instance)[1]
    assert "void" in json.loads(oef("--json", instance=instance)[1])["warnings"][0]


def test_standard_input_is_read(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(json.dumps(B).encode())))
    assert main(["oef", "--instance", "-", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["total"] == pytest.approx(5.25)


@pytest.mark.parametrize(
    ("arguments", "instance", "said"),
    [
        ((), B | {"capacity": [1, -1]}, "instance.capacity[1] must be a whole number from 0 to 1000000: -1"),
        (("--mode", "coop"), B, "unknown allocation rule: 'coop'"),
        (("--one-more", "v10"), B, "unknown GPU type in --one-more: 'v10'; did you mean 'v100'?"),
    ],
)
def test_bad_input_exits_with_2_and_one_line(oef, arguments, instance, said):
    code, out, err = oef(*arguments, instance=instance)
    assert (code, out) == (2, "")
    assert err.startswith("themis: ") and said in err and err.count("\n") == 1


def test_a_file_that_is_missing_exits_with_2(capsys, tmp_path):
    assert main(["oef", "--instance", str(tmp_path / "none.json")]) == 2
    assert "cannot read" in capsys.readouterr().err
