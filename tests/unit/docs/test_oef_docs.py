"""docs/explanation/oef.md holds every key, option and rule, and its example is what the command prints."""

import argparse
import json
import re

from documents import ROOT, block, code, table_rows, text_of

from rm_plugin.policies.oef import instance_file
from rm_plugin.policies.oef.evaluator import evaluate
from rm_plugin.policies.oef.instance_file import parse_instance
from rm_plugin.policies.oef.registry import RULES, rule_named
from rm_plugin.solvers.highs_linear import HighsModel
from themis_cli.main import main
from themis_cli.oef_command import add_to, as_document

PAGE = "docs/explanation/oef.md"


def first_column(heading):
    return [code(row[0])[0] for row in table_rows(PAGE, heading)]


def test_keys_of_an_instance_are_all_there():
    assert first_column("key of the instance") == list(instance_file.INSTANCE.required)
    assert first_column("key of a tenant") == [*instance_file.TENANT.required, *instance_file.TENANT.optional]


def test_keys_of_the_result_are_all_there():
    instance = parse_instance(json.loads(block(PAGE, "file: instance.json").body))
    fair = evaluate(instance, rule_named("cooperative", HighsModel))
    assert first_column("key of the result") == list(as_document("cooperative", instance, fair, 0.0, {}))


def test_options_and_rules_are_all_there():
    commands = argparse.ArgumentParser().add_subparsers()
    add_to(commands)
    known = {option for action in commands.choices["oef"]._actions for option in action.option_strings}
    assert {name.split()[0] for name in first_column("option")} == known - {"-h", "--help"}
    assert all(f"`{rule}`" in text_of(PAGE) for rule in RULES)


def test_the_example_matches_the_output_of_the_command(tmp_path, capsys):
    path = tmp_path / "instance.json"
    path.write_text(block(PAGE, "file: instance.json").body, encoding="utf-8")
    assert main(["oef", "--instance", str(path), "--mode", "cooperative"]) == 0
    shown = re.search(r"--mode cooperative\n(.*?)```", text_of(PAGE), flags=re.S).group(1)

    def without_time(text):
        return [line.rstrip() for line in re.sub(r"in \d\.\d+ s", "in S s", text).splitlines()]

    assert without_time(capsys.readouterr().out) == without_time(shown)


def test_the_page_is_linked():
    assert "docs/explanation/oef" in (ROOT / "docs/toc.yml").read_text(encoding="utf-8")
