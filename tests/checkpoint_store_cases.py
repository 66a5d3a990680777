"""What every checkpoint store has to do: tests for a subclass that gives the fixture `store` and `damage`."""

from pathlib import Path

import pytest

from am.checkpoints import MissingCheckpointError
from themis.errors import InputError


class CheckpointStoreCases:
    @pytest.fixture
    def source(self, tmp_path):
        def write(text: str) -> dict[str, Path]:
            (tmp_path / "a").write_text(text)
            (tmp_path / "b").write_bytes(b"\0" * 100)
            return {"weights": tmp_path / "a", "slots": tmp_path / "b"}

        return write

    def damage(self, store, saved, name):
        """Change the content of a file of a saved checkpoint, behind the store's back and without changing its size."""
        raise NotImplementedError

    def test_saved_files_come_back(self, store, source, tmp_path):
        meta = {"seed": 3, "rate": 0.5, "program": "p"}
        saved = store.save("j", 7, source("hello"), meta)
        found = store.latest("j")
        assert found == saved
        assert found.meta == meta
        assert [(f.name, f.size_bytes) for f in found.files] == [("slots", 100), ("weights", 5)]
        assert found.size_bytes == 105
        store.fetch(found, tmp_path / "out")
        assert (tmp_path / "out" / "weights").read_text() == "hello"
        assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["slots", "weights"]

    def test_an_unknown_job_has_none(self, store):
        assert store.latest("j") is None
        assert store.latest_iteration("j") is None
        store.prune("j", 1)

    def test_latest_is_the_highest_iteration_of_the_job(self, store, source):
        for iteration in (9, 10, 2):
            store.save("j", iteration, source("x"), {})
        store.save("other", 99, source("x"), {})
        assert store.latest("j").iteration == 10
        assert store.latest_iteration("j") == 10

    def test_a_corrupt_file_is_passed_over(self, store, source):
        store.save("j", 1, source("old"), {})
        self.damage(store, store.save("j", 2, source("new"), {}), "weights")
        assert store.latest("j").iteration == 1

    def test_a_corrupt_file_is_not_fetched(self, store, source, tmp_path):
        saved = store.save("j", 2, source("new"), {})
        self.damage(store, saved, "weights")
        with pytest.raises(ValueError, match="differs from its record"):
            store.fetch(saved, tmp_path / "out")
        assert not (tmp_path / "out" / "weights").exists()

    def test_the_newest_whole_checkpoint_is_fetched(self, store, source, tmp_path):
        assert store.fetch_latest("j", tmp_path / "out") is None
        for iteration, text in ((9, "old"), (10, "new")):
            saved = store.save("j", iteration, source(text), {})
        assert store.fetch_latest("j", tmp_path / "out") == saved
        assert (tmp_path / "out" / "weights").read_text() == "new"
        assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["slots", "weights"]

    def test_a_fetch_skips_a_broken_checkpoint_without_leaving_files(self, store, source, tmp_path):
        (tmp_path / "c").write_text("in the broken one only")
        whole = store.save("j", 1, {"weights": source("old")["weights"]}, {})
        broken = store.save("j", 2, {"another": tmp_path / "c", "weights": source("new")["weights"]}, {})
        self.damage(store, broken, "weights")
        assert store.fetch_latest("j", tmp_path / "out") == whole
        assert [p.name for p in (tmp_path / "out").iterdir()] == ["weights"]
        assert (tmp_path / "out" / "weights").read_text() == "old"

    def test_the_same_iteration_twice_keeps_the_first(self, store, source, tmp_path):
        first = store.save("j", 5, source("first"), {})
        assert store.save("j", 5, source("second"), {}) == first
        store.fetch(store.latest("j"), tmp_path / "out")
        assert (tmp_path / "out" / "weights").read_text() == "first"

    def test_the_same_iteration_replaces_a_broken_one(self, store, source, tmp_path):
        self.damage(store, store.save("j", 5, source("first"), {}), "weights")
        store.save("j", 5, source("second"), {})
        store.fetch(store.latest("j"), tmp_path / "out")
        assert (tmp_path / "out" / "weights").read_text() == "second"

    @pytest.mark.parametrize("keep", [1, 3])
    def test_prune_keeps_the_newest(self, store, source, keep, tmp_path):
        saved = [store.save("j", i, source("x"), {}) for i in range(1, 6)]
        store.prune("j", keep)
        for checkpoint in saved[:-keep]:
            with pytest.raises(MissingCheckpointError):
                store.fetch(checkpoint, tmp_path / "out")
        assert store.latest("j").iteration == 5

    def test_prune_keeps_three_by_default(self, store, source, tmp_path):
        saved = [store.save("j", i, source("x"), {}) for i in range(1, 6)]
        store.prune("j")
        store.fetch(saved[2], tmp_path / "out")
        with pytest.raises(MissingCheckpointError):
            store.fetch(saved[1], tmp_path / "out")

    @pytest.mark.parametrize("job_id", ["", ".", "..", "a/b", ".hidden"])
    def test_job_ids_that_are_no_folder_names(self, store, source, job_id):
        with pytest.raises(InputError):
            store.save(job_id, 1, source("x"), {})
        with pytest.raises(InputError):
            store.latest(job_id)

    @pytest.mark.parametrize("name", ["", "..", "a/b", ".hidden", "manifest.json"])
    def test_file_names_that_cannot_be_kept(self, store, tmp_path, name):
        (tmp_path / "f").touch()
        with pytest.raises(InputError):
            store.save("j", 1, {name: tmp_path / "f"}, {})

    def test_iterations_and_counts_out_of_range(self, store, source):
        for iteration in (-1, 10**12):
            with pytest.raises(InputError):
                store.save("j", iteration, source("x"), {})
        with pytest.raises(InputError):
            store.save("j", 1, {}, {})
        with pytest.raises(InputError):
            store.prune("j", 0)

    def test_a_store_can_be_looked_through(self, store, source):
        assert store.jobs() == ()
        assert store.checkpoints("j") == ()
        saved = [store.save("j", iteration, source("x"), {}) for iteration in (10, 9)]
        store.save("b", 1, source("x"), {})
        assert store.jobs() == ("b", "j")
        assert store.checkpoints("j") == (saved[1], saved[0])

    def test_a_checkpoint_is_whole_until_its_files_are_damaged_or_pruned(self, store, source):
        saved = store.save("j", 1, source("x"), {})
        assert store.is_whole(saved)
        self.damage(store, saved, "slots")
        assert not store.is_whole(saved)
        store.save("j", 5, source("x"), {})
        store.prune("j", 1)
        assert not store.is_whole(saved)
