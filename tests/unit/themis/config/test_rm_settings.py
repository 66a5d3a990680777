"""The ResourceManager's settings: defaults, and values that cannot work together."""

from pathlib import Path

import pytest

from rm_plugin.arbiter.core import LeasePolicy
from rm_plugin.arbiter.round_values import RoundSettings
from themis.choices import BundleRule, EmptyBundle, LeaseEnds, Rounding
from themis.config.examples import ExampleKind, file_or_example
from themis.config.loader import fit, parse_yaml
from themis.config.rm_settings import RmSettings, load_rm_settings
from themis.errors import InputError

CONF = Path(__file__).resolve().parents[4] / "conf"


def settings(text=""):
    return fit(RmSettings, parse_yaml(f"cluster: c.yaml\n{text}", "s.yaml"), "s.yaml")


def test_defaults_match_the_specification():
    auction, lease = settings().auction, settings().lease
    assert (auction.f, auction.payments, auction.rounding) == (0.8, True, Rounding.PROBABILISTIC)
    assert (auction.empty_bundle, auction.bundle_rule) == (EmptyBundle.FINITE, BundleRule.CONTINUATION)
    assert (lease.duration_s, lease.ends) == (600.0, LeaseEnds.ALIGNED)
    assert settings().coalesce_s == 1.0


def test_the_arbiters_own_defaults_are_the_same():
    auction, lease = settings().auction, settings().lease
    assert RoundSettings() == RoundSettings(
        f=auction.f,
        empty_bundle=auction.empty_bundle,
        rounding=auction.rounding,
        payments=auction.payments,
        bidders=auction.bidders,
        values=auction.values,
        leftovers=auction.leftovers,
    )
    assert LeasePolicy() == LeasePolicy(
        duration_s=lease.duration_s,
        ends=lease.ends,
        checkpoint_lead_s=lease.checkpoint_lead_s,
        grace_s=lease.grace_s,
    )


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("auction: {f: 1.1}", "auction.f"),
        ("auction: {f: -0.1}", "auction.f"),
        ("auction: {f: true}", "auction.f: should be a number"),
        ("auction: {payments: 1}", "auction.payments: should be true or false"),
        ("auction: {rounding: floor}", "auction.rounding.*probabilistic"),
        ("auction: {bundle_rule: lexicographic}", "empty_bundle"),
        ("auction: {values: seconds, empty_bundle: lexicographic}", "set empty_bundle finite"),
        ("auction: {bidders: worst}", "auction.bidders.*worst_rho"),
        ("auction: {leftovers: shorter}", "auction.leftovers.*shortest"),
        ("auction: {fairness: 1}", "unknown key auction.fairness"),
        ("lease: {duration: 600}", "did you mean 'duration_s'"),
        ("lease: {duration_s: 0}", "lease.duration_s"),
        ("lease: {duration_s: .inf}", "lease.duration_s"),
        ("lease: {duration_s: 30}", "shorter than the lease"),
        ("lease: {checkpoint_lead_s: -1}", "lease.checkpoint_lead_s"),
        ("engine: kubernetes", "engine"),
        ("tenant_weights: {ann: 0}", "tenant_weights.ann"),
        ("tenant_weights: {ann: .inf}", "tenant_weights.ann"),
        ("tenant_weights: {ann: .nan}", "tenant_weights.ann"),
        ("tenant_weights: {ann: true}", "tenant_weights.ann"),
        ("tenant_weights: 2", "tenant_weights"),
        ("am_max_attempts: 0", "am_max_attempts"),
        ("seed: 1.5", "seed: should be a whole number"),
        ("polcy: drf", "did you mean 'policy'"),
    ],
)
def test_contradictory_settings_are_refused(text, match):
    with pytest.raises(InputError, match=match):
        settings(text)


def test_lexicographic_bundles_go_with_a_lexicographic_auction():
    text = "auction: {bundle_rule: lexicographic, empty_bundle: lexicographic}"
    assert settings(text).auction.bundle_rule is BundleRule.LEXICOGRAPHIC


@pytest.mark.parametrize("cluster", ["c.yaml", "mine", "small-8"])
def test_relative_paths_in_a_file_are_relative_to_its_folder(tmp_path, monkeypatch, cluster):
    (tmp_path / "mine").touch()
    kerberos = "yarn: {keytab: rm.keytab, principal: rm}"
    (tmp_path / "s.yaml").write_text(f"cluster: {cluster}\nstate_dir: state\n{kerberos}\n")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    read = load_rm_settings(Path("../s.yaml"))
    example = CONF / "clusters/small-8.yaml"
    assert read.cluster.resolve() == (example if cluster == "small-8" else tmp_path / cluster)
    assert (read.state_dir, read.yarn.keytab) == (Path("../state"), "../rm.keytab")


def test_absolute_paths_in_a_file_stay_and_defaults_are_relative_to_the_working_directory(tmp_path):
    (tmp_path / "s.yaml").write_text("cluster: /etc/c.yaml\n")
    read = load_rm_settings(tmp_path / "s.yaml")
    assert (read.cluster, read.state_dir) == (Path("/etc/c.yaml"), Path("out/rm"))


@pytest.mark.parametrize(
    ("engine", "folder"), [("local", "out/rm"), ("yarn", "out/rm-yarn"), ("docker", "out/rm-docker")]
)
def test_engines_have_folders_of_their_own(tmp_path, engine, folder):
    (tmp_path / "s.yaml").write_text(f"cluster: small-8\nengine: {engine}\n")
    assert load_rm_settings(tmp_path / "s.yaml").state_dir == Path(folder)


def test_the_shipped_file_equals_the_defaults():
    shipped = load_rm_settings(CONF / "themis.yaml")
    assert shipped == RmSettings(cluster=shipped.cluster, page="127.0.0.1:8651")
    assert file_or_example(shipped.cluster, ExampleKind.CLUSTER).is_file()


def test_weights_of_tenants_may_be_whole_or_fractions():
    assert settings("tenant_weights: {ann: 2, 'team:b': 0.5}").tenant_weights == {"ann": 2.0, "team:b": 0.5}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("standby: {enabled: true}", "standby.enabled and standby.folder go together"),
        ("standby: {folder: shared}", "standby.enabled and standby.folder go together"),
        ("engine: yarn\nstandby: {enabled: true, folder: shared}", "standby.folder cannot be set with the engine yarn"),
        ("standby: {enabled: true, folder: shared, addresses: [rm1]}", "write HOST:PORT"),
    ],
)
def test_standby_that_cannot_work_is_refused(text, problem):
    with pytest.raises(InputError, match=problem):
        settings(text)


def test_files_of_apps_are_in_the_shared_folder_if_there_is_one(tmp_path):
    path = tmp_path / "s.yaml"
    path.write_text("cluster: testbed-64\nstate_dir: state\nstandby: {enabled: true, folder: shared}\n")
    assert load_rm_settings(path).files_dir == tmp_path / "shared"
    path.write_text("cluster: testbed-64\nstate_dir: state\n")
    assert load_rm_settings(path).files_dir == tmp_path / "state"
