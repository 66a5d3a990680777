"""`themis auction`: its output, its exit codes, and bad files."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from small_markets import bid, gang, machine, market, row

from rm_plugin.arbiter.market_document import market_document
from rm_plugin.solvers.registry import SOLVERS
from themis.cluster import Level
from themis_cli.auction_table import TIES
from themis_cli.main import main

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "conf/markets/three-apps.json"


def written(folder, document):
    path = folder / "market.json"
    path.write_bytes(document if isinstance(document, bytes) else json.dumps(document).encode())
    return str(path)


def auction(capsys, *arguments, market=EXAMPLE):
    """Run the command. Returns exit code, standard output and standard error."""
    code = main(["auction", "--market", str(market), *arguments])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def as_json(capsys, *arguments, market=EXAMPLE):
    code, out, err = auction(capsys, "--json", *arguments, market=market)
    assert (code, err) == (0, "")
    return json.loads(out)


@pytest.mark.parametrize("name", sorted(SOLVERS))
def test_every_solver_solves_example(name, capsys):
    result = as_json(capsys, "--solver", name, "--seed", "0")
    seconds = result.pop("solve_s")
    assert 0 < seconds["first"] <= seconds["all"]
    assert result == {
        "status": "optimal",
        "gap": 0.0,
        "log_objective": pytest.approx(-1.3318061758, abs=1e-9),
        "proportional_fair": {"search": {"m0": 2, "m2": 2}, "speech": {"m0": 1}, "vision": {"m1": 4}},
        "payments": pytest.approx({"search": 0.55 / 0.75, "speech": 1.0, "vision": 0.6 * 0.55 / (0.7 * 0.75)}),
        "allocation": {"search": {"m0": 2}, "speech": {"m0": 1}, "vision": {}},
        "leftover": {"m1": 4, "m2": 2},
    }


def test_default_solver_is_exact_and_reproducible(capsys):
    first, again, exact = (as_json(capsys, *more) for more in ([], [], ["--solver", "exact", "--seed", "0"]))
    for result in (first, again, exact):
        del result["solve_s"]
    assert first == again == exact


def test_seed_and_rounding_change_only_kept_gpus(capsys):
    results = [as_json(capsys, "--seed", seed) for seed in ("-9223372036854775808", "18446744073709551615", "1", "2")]
    assert {len(result["allocation"]["vision"]) for result in results} == {0, 1}
    assert all(result["proportional_fair"] == results[0]["proportional_fair"] for result in results)
    nearest = as_json(capsys, "--rounding", "nearest")["allocation"]
    assert nearest == {"search": {"m0": 2}, "speech": {"m0": 1}, "vision": {"m1": 4}}
    by_gpu = as_json(capsys, "--rounding", "by_gpu")["allocation"]
    # A market file does not say how small a gang may be, so one that is kept in part is kept whole or not at all.
    assert by_gpu["vision"] in ({}, {"m1": 4})


def test_table_has_a_line_per_app(capsys):
    code, out, err = auction(capsys)
    assert (code, err) == (0, "")
    lines = [line.split() for line in out.splitlines()]
    assert ["speech", "0.4", "0.55", "0", "1", "m0:1", "1.0000", "m0:1"] in lines
    assert ["left", "over:", "m1:4", "m2:2"] in lines
    assert "optimal by exact; gap 0; log objective -1.33180618" in out
    assert TIES["exact"] in out


def test_every_solver_reports_ties():
    assert TIES.keys() == SOLVERS.keys()


def test_losing_bidders_and_odd_names_are_shown(tmp_path, capsys):
    one = market(
        [machine("m0", 1)],
        bid("[red]\x1b[2J", 0.5, row(0.6, gang(1, Level.CLUSTER))),
        bid("b", 0.5, row(0.9, gang(1, Level.CLUSTER))),
    )
    _, out, _ = auction(capsys, market=written(tmp_path, market_document(one)))
    lines = [line.split() for line in out.splitlines()]
    assert ["[red]\\x1b[2J", "0.5", "-", "-", "0", "-", "1.0000", "-"] in lines
    assert ["left", "over:", "nothing"] in lines or ["left", "over:", "m0:1"] in lines


@pytest.mark.parametrize("json_flag", [(), ("--json",)])
def test_market_without_bidders_has_empty_result(json_flag, tmp_path, capsys):
    path = written(tmp_path, {"machines": [{"id": "m0", "gpus": 2}], "bidders": []})
    code, out, _ = auction(capsys, *json_flag, market=path)
    assert code == 0
    assert "optimal" in out


def test_market_is_read_from_standard_input():
    command = [sys.executable, "-m", "themis_cli.main", "auction", "--market", "-", "--json"]
    ended = subprocess.run(command, input=EXAMPLE.read_bytes(), capture_output=True, check=False, cwd=ROOT, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert json.loads(ended.stdout)["status"] == "optimal"


BAD_FILES = {
    "not JSON": (b"{", "market.json is not JSON"),
    "not UTF-8": (b"\xff", "market.json is not UTF-8"),
    "no market": (b"[]", "market must be an object"),
    "a key twice": (b'{"machines": [], "machines": []}', "market has a key twice: 'machines'"),
    "NaN": (
        b'{"machines": [{"id": "m", "gpus": NaN}], "bidders": []}',
        "market.machines[0].gpus must be a whole number",
    ),
    "deep": (b"[" * 100_000, "market.json is nested too deeply"),
}


@pytest.mark.parametrize("bad", BAD_FILES)
def test_malformed_market_exits_2_with_file_name(bad, tmp_path, capsys):
    content, message = BAD_FILES[bad]
    code, out, err = auction(capsys, market=written(tmp_path, content))
    assert (code, out) == (2, "")
    assert err.startswith("themis: ")
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("name", ["missing.json", "", "nul\0.json"])
def test_unreadable_file_is_named(name, tmp_path, capsys):
    path = tmp_path / name
    code, _, err = auction(capsys, market=path)
    assert code == 2
    assert err.startswith(f"themis: cannot read {path}")


def test_unknown_solver_names_nearest(capsys):
    code, _, err = auction(capsys, "--solver", "exct")
    assert code == 2
    assert "unknown solver: 'exct'; did you mean 'exact'?" in err


SINGLE = gang(1, Level.CLUSTER)
TOO_LARGE = {
    "choices": ([machine("m0", 9)], *(bid(f"a{n}", 0.1, *(row(v, SINGLE) for v in range(1, 30))) for n in range(9))),
    "machines": ([machine(f"m{n}", 1) for n in range(2000)], bid("a", 0.1, row(0.5, SINGLE))),
    "gangs": ([machine("m0", 5000)], bid("a", 0.1, row(0.5, gang(1, Level.CLUSTER, 3000)))),
}


@pytest.mark.parametrize("what", TOO_LARGE)
def test_market_too_large_for_brute_force_is_refused(what, tmp_path, capsys):
    path = written(tmp_path, market_document(market(*TOO_LARGE[what])))
    code, _, err = auction(capsys, "--solver", "brute_force", market=path)
    assert code == 2
    assert re.search(rf"brute_force takes at most \d+ {what}.*choose another solver", err)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--seed", "1.5"),
        ("--seed", "1_000"),
        ("--seed", "18446744073709551616"),
        ("--seed", "-9223372036854775809"),
        ("--seed", "٣"),
        ("--time-limit-s", "0"),
        ("--time-limit-s", "nan"),
        ("--time-limit-s", "soon"),
        ("--rounding", "floor"),
    ],
)
def test_bad_options_exit_2(arguments, capsys):
    code, _, err = auction(capsys, *arguments)
    assert code == 2
    assert arguments[0] in err


def test_market_above_licence_fails_with_status(tmp_path, capsys):
    rows = [row(size / 100, gang(size, Level.CLUSTER)) for size in range(1, 41)]
    large = market([machine("m0", 80)], *(bid(f"a{index:02}", 0.001, *rows) for index in range(51)))
    path = written(tmp_path, market_document(large))
    code, out, err = auction(capsys, "--solver", "gurobi", "--json", market=path)
    result = json.loads(out)
    assert (code, result["status"], result["proportional_fair"], result["allocation"]) == (1, "licence", {}, {})
    assert result["leftover"] == {"m0": 80}
    assert set(result["payments"].values()) == {1.0}
    assert "past the licence of gurobi; choose another --solver" in err


def test_timeout_shows_best_choice_with_gap(tmp_path, capsys):
    rows = [row(size / 41, gang(size, Level.MACHINE)) for size in range(2, 9)]
    bids = [bid(f"a{index:02}", 0.01 + index / 1000, *rows) for index in range(20)]
    large = market([machine(f"m{index}", 5, 2) for index in range(15)], *bids)
    path = written(tmp_path, market_document(large))
    result = as_json(capsys, "--solver", "highs", "--time-limit-s", "0.001", market=path)
    assert result["status"] == "time_limit"
    assert result["gap"] > 0
