"""Stores of NodeManagers that a kill -9 left without their MANIFEST."""

import pytest

from themis_lab.devcluster.recovery import drop_broken_store


@pytest.mark.parametrize(("manifest", "kept"), [("MANIFEST-000002", True), ("MANIFEST-000001", False)])
def test_store_whose_manifest_is_missing_is_removed(tmp_path, manifest, kept):
    store = tmp_path / "recovery" / "yarn-nm-state"
    store.mkdir(parents=True)
    (store / "CURRENT").write_text("MANIFEST-000002\n")
    (store / manifest).write_text("")
    drop_broken_store(tmp_path)
    assert store.exists() is kept


def test_node_without_a_store_has_nothing_to_remove(tmp_path):
    drop_broken_store(tmp_path)
