"""Configuration files: what does not fit is refused with its place, its line where known, and the nearest known key."""

from enum import StrEnum

import pytest
from pydantic import Field, StrictBool, StrictInt

from themis.config.loader import Section, fit, load, load_yaml, parse_yaml
from themis.errors import InputError


class Leaf(Section):
    duration: float = 1.0
    grace: float = 1.0


class Named(Section):
    speed: float = 1.0
    kind: str = ""


class Kind(StrEnum):
    GPU = "gpu"
    CPU = "cpu"


class Root(Section):
    name: str
    count: StrictInt | None = Field(default=None, ge=1)
    sure: StrictBool | None = None
    kind: Kind = Kind.GPU
    pair: tuple[int, int] = (1, 2)
    some: tuple[int, ...] = Field(default=(1,), min_length=1)
    short: str = Field(default="x", min_length=1)
    leaf: Leaf = Leaf()
    maybe: Leaf | None = None
    many: tuple[Leaf, ...] = ()
    named: dict[str, Named] = Field(default={})


def refusal(text, model=Root):
    with pytest.raises(InputError) as caught:
        fit(model, parse_yaml(text, "f.yaml"), "f.yaml")
    return str(caught.value)


class TestUnknownKeys:
    @pytest.mark.parametrize(
        ("text", "place", "near"),
        [
            ("name: x\nnam: y", "nam", "name"),
            ("name: x\nleaf: {durations: 1}", "leaf.durations", "duration"),
            ("name: x\nmaybe: {gracee: 1}", "maybe.gracee", "grace"),
            ("name: x\nmany: [{}, {grce: 1}]", "many[1].grce", "grace"),
            ("name: x\nnamed: {gpu: {sped: 1}}", "named.gpu.sped", "speed"),
            ("name: x\nnamed: {kind: {sped: 1}}", "named.kind.sped", "speed"),
        ],
    )
    def test_nested_ones_name_the_nearest_of_their_own_section(self, text, place, near):
        assert refusal(text) == f"f.yaml: unknown key {place}; did you mean {near!r}?"

    def test_without_a_near_one_the_known_ones_are_listed(self):
        assert refusal("name: x\nleaf: {zzz: 1}").endswith("known keys: duration, grace")

    def test_a_misspelt_key_is_reported_before_the_missing_one(self):
        assert "did you mean 'name'" in refusal("nme: x")


class TestValues:
    def test_a_missing_key_is_named(self):
        assert refusal("leaf: {}") == "f.yaml: name is missing; add it"

    def test_a_value_that_does_not_fit_is_shown_with_its_place(self):
        text = refusal("name: x\nmany: [{grace: soon}]")
        assert text.startswith("f.yaml: many[0].grace: ")
        assert text.endswith("'soon'")

    def test_a_long_value_is_cut(self):
        assert len(refusal(f"name: x\nleaf: {{grace: {'y' * 500}}}")) < 300

    @pytest.mark.parametrize("number", [".inf", "-.inf", ".nan"])
    def test_no_number_is_infinite_or_nan(self, number):
        assert "leaf.grace" in refusal(f"name: x\nleaf: {{grace: {number}}}")

    @pytest.mark.parametrize("value", ["true", "'1'", "[1]", "null"])
    def test_a_number_is_written_as_one(self, value):
        assert "leaf.grace: should be a number" in refusal(f"name: x\nleaf: {{grace: {value}}}")

    def test_the_known_keys_of_a_section_are_listed_once(self):
        assert refusal("name: x\nleaf: {xxx: 1, zzz: 1}").splitlines() == [
            "f.yaml: unknown key leaf.xxx; known keys: duration, grace",
            "f.yaml: unknown key leaf.zzz",
        ]

    def test_a_cluster_file_in_place_of_another_is_recognised(self):
        assert "f.yaml looks like a cluster file" in refusal("machines: []\ndevices: {}")

    @pytest.mark.parametrize("word", ["no", "On", "yes", "OFF"])
    def test_words_that_yaml_reads_as_truth_values_are_refused(self, word):
        read = "true" if word.lower() in ("on", "yes") else "false"
        assert f"f.yaml, line 2: a word that YAML reads as {read}: {word!r}" in refusal(f"name: x\nshort: {word}")

    def test_all_words_and_numbers_that_yaml_reads_as_others_are_named_at_once(self):
        found = refusal("name: no\nshort: 010\nleaf: {grace: 1:30}\n")
        assert [line.split(";")[0] for line in found.splitlines()] == [
            "f.yaml, line 1: a word that YAML reads as false: 'no'",
            "f.yaml, line 2: a number that YAML reads as 8: '010'",
            "f.yaml, line 3: a number that YAML reads as 90: '1:30'",
        ]

    @pytest.mark.parametrize("word", ["true", "True", "TRUE"])
    def test_true_may_be_written_in_any_case(self, word):
        assert fit(Root, parse_yaml(f"name: x\nsure: {word}", "f"), "f").sure is True

    def test_zeros_at_the_end_of_a_number_mean_nothing_to_a_key_that_takes_a_number(self):
        assert fit(Root, parse_yaml("name: x\nleaf: {grace: 1.50}", "f"), "f").leaf.grace == 1.5

    def test_all_errors_are_reported_at_once_with_unknown_keys_first(self):
        assert refusal("count: x\nsome: [a]\nleaf: {duration: x, zzz: 1}").splitlines() == [
            "f.yaml: unknown key leaf.zzz; known keys: duration, grace",
            "f.yaml: name is missing; add it",
            "f.yaml: count: should be a whole number: 'x'",
            "f.yaml: some[0]: should be a whole number: 'a'",
            "f.yaml: leaf.duration: should be a number: 'x'",
        ]

    def test_only_the_first_of_many_errors_are_listed(self):
        lines = refusal("name: x\nmany: [" + ", ".join(["{grace: x}"] * 24) + "]").splitlines()
        assert (len(lines), lines[-1]) == (21, "and 4 more errors")

    @pytest.mark.parametrize(
        "value",
        [
            "!!set {a, b}",
            "!!map foo",
            "!!seq foo",
            "!!omap [a: 1]",
            "!!pairs [a: 1]",
            "!!int [1]",
            "!!float x",
            "!own 1",
        ],
    )
    def test_a_tag_that_does_not_fit_is_refused_in_one_line(self, value):
        text = refusal(f"name: x\nmany: {value}")
        assert text.startswith("f.yaml is not valid YAML")
        assert "\n" not in text

    @pytest.mark.parametrize(("value", "number"), [("2", 2.0), ("0.5", 0.5), ("1e-3", 0.001), ("1.0e+2", 100.0)])
    def test_numbers_with_and_without_point_or_exponent(self, value, number):
        assert fit(Root, parse_yaml(f"name: x\nleaf: {{grace: {value}}}", "f"), "f").leaf.grace == number

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("leaf: [1]", "leaf: should be keys and values: [1]"),
            ("leaf:", "leaf: should be keys and values and is empty"),
            ("named: 1", "named: should be keys and values: 1"),
            ("named: {1: {}}", "named: a key should be text: 1"),
            ("many: {a: 1}", "many: should be a list: {'a': 1}"),
            ("many: [1]", "many[0]: should be keys and values: 1"),
            ("named: {a: {kind: 1}}", "named.a.kind: should be text: 1"),
            ("short: ''", "short: should not be empty: ''"),
            ("some: []", "some: should hold at least 1: []"),
            ("pair: [1, 2, 3]", "pair: should hold at most 2: [1, 2, 3]"),
            ("count: 1.5", "count: should be a whole number: 1.5"),
            ("count: 0", "count: should be greater than or equal to 1: 0"),
            ("sure: 1", "sure: should be true or false: 1"),
            ("kind: tpu", "kind: should be 'gpu' or 'cpu': 'tpu'"),
        ],
    )
    def test_expected_types_are_named_in_yaml_terms(self, text, expected):
        assert refusal(f"name: x\n{text}") == f"f.yaml: {expected}"

    def test_values_are_frozen(self):
        root = fit(Root, {"name": "x"}, "f.yaml")
        with pytest.raises(ValueError, match="frozen"):
            root.name = "y"


class TestYaml:
    @pytest.mark.parametrize(
        ("text", "line"),
        [
            ("name: x\nleaf: {}\nname: y\n", 3),
            ("leaf:\n  grace: 1\n  duration: 2\n  grace: 3\n", 4),
            ("many:\n  - {grace: 1, grace: 2}\n", 2),
        ],
    )
    def test_a_key_given_twice_is_refused_with_its_line(self, text, line):
        with pytest.raises(InputError, match=rf"f\.yaml is not valid YAML, line {line}: .*given twice"):
            parse_yaml(text, "f.yaml")

    def test_the_same_key_in_two_sections_is_fine(self):
        assert parse_yaml("a: {k: 1}\nb: {k: 2}", "f.yaml") == {"a": {"k": 1}, "b": {"k": 2}}

    def test_a_number_and_its_text_are_two_keys(self):
        assert parse_yaml("a: {1: x, '1': y}", "f.yaml") == {"a": {1: "x", "1": "y"}}

    def test_merged_keys_may_be_overridden(self):
        text = "base: &base {k: 1, l: 2}\nmore: {<<: *base, k: 3}"
        assert parse_yaml(text, "f.yaml")["more"] == {"k": 3, "l": 2}

    @pytest.mark.parametrize(("text", "line"), [("a: 1\nb: [1,\nc: 2\n", 4), ("a: 1\n\tb: 2\n", 2), ("a: 'x\n", 2)])
    def test_broken_yaml_names_the_line(self, text, line):
        with pytest.raises(InputError, match=rf"line {line}\b"):
            parse_yaml(text, "f.yaml")

    @pytest.mark.parametrize(
        ("text", "read"),
        [
            *(("010", 8), ("1:30", 90), ("0x1F", 31), ("0b11", 3), ("1_000", 1000), ("+5", 5), ("-0", 0)),
            *(("1:30.5", 90.5), ("1_0.5", 10.5)),
        ],
    )
    def test_a_number_that_is_read_as_another_is_refused_with_its_line(self, text, read):
        with pytest.raises(InputError) as caught:
            parse_yaml(f"a: 1\nb: {{c: {text}}}\n", "f.yaml")
        assert str(caught.value) == (
            f"f.yaml, line 2: a number that YAML reads as {read}: {text!r}; "
            "write it in plain digits, or in quotes where it is text"
        )

    def test_plain_numbers_and_quoted_texts_keep_their_types(self):
        text = "{a: 10, b: -3, c: 0, d: 1.50, e: .5, f: 1.0e+3, g: .inf, h: '010', i: '1:30', j: 08}"
        values = [10, -3, 0, 1.5, 0.5, 1000.0, float("inf"), "010", "1:30", "08"]
        assert list(parse_yaml(text, "f.yaml").values()) == values

    @pytest.mark.parametrize(
        "value", ["2020-13-45", "9" * 5000, "0x" + "f" * 5000, "!!int x", "!!float x", "!!bool x", "!!timestamp x"]
    )
    def test_an_invalid_value_is_refused_with_its_line(self, value):
        with pytest.raises(InputError, match=r"f\.yaml is not valid YAML, line 2: .*cannot read"):
            parse_yaml(f"a: 1\nb: {value}\n", "f.yaml")

    @pytest.mark.parametrize("text", ["", "- a\n", "just text", "3"])
    def test_the_top_level_is_a_mapping(self, text):
        with pytest.raises(InputError, match="keys and values"):
            parse_yaml(text, "f.yaml")

    def test_no_object_is_made_from_a_tag(self):
        with pytest.raises(InputError, match="not valid YAML"):
            parse_yaml("a: !!python/object/apply:os.system [true]", "f.yaml")


class TestFiles:
    def test_a_missing_file_is_refused(self, tmp_path):
        with pytest.raises(InputError, match=r"cannot read .*none\.yaml: No such file or directory; check the path"):
            load_yaml(tmp_path / "none.yaml")

    def test_a_folder(self, tmp_path):
        with pytest.raises(InputError, match="cannot read"):
            load_yaml(tmp_path)

    def test_bytes_that_are_no_text(self, tmp_path):
        path = tmp_path / "f.yaml"
        path.write_bytes(b"name: \xff\xfe")
        with pytest.raises(InputError, match="UTF-8"):
            load_yaml(path)

    def test_a_good_one(self, tmp_path):
        path = tmp_path / "f.yaml"
        path.write_text("name: \u00e9\nleaf: {grace: 2}\n", encoding="utf-8")
        assert load(Root, path) == Root(name="\u00e9", leaf=Leaf(grace=2.0))


def test_a_file_nested_too_deeply_is_refused():
    with pytest.raises(InputError, match="nested too deeply"):
        parse_yaml("[" * 5000, "deep.yaml")
