"""Record framing, event messages and event folders on bytes made by hand."""

import random
import struct

import pytest

from am.profiler import crc32c as crc32c_module
from am.profiler import event_folder, event_message, follower, tfrecord
from am.profiler.crc32c import crc32c, crc32cs, masked_crc32c
from am.profiler.event_folder import EventFolder
from am.profiler.event_format import EventReader, Role
from am.profiler.event_message import Event, EventError, read_event
from am.profiler.follower import LogFollower
from am.profiler.job_reader import JobReader
from am.profiler.profile import JobProfile
from am.profiler.records import LossOnly, StepLoss, StepsPerSecond, Validation
from am.profiler.tfrecord import RecordReader, intact


def varint(value):
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def field(number, kind, data):
    return varint(number << 3 | kind) + (varint(len(data)) if kind == 2 else b"") + data


def simple(tag, value):
    return field(1, 2, field(1, 2, tag.encode()) + field(2, 5, struct.pack("<f", value)))


def tensor(tag, dtype, **parts):
    body = field(1, 0, varint(dtype)) + field(2, 2, b"")
    body += b"".join(field({"content": 4, "floats": 5, "doubles": 6}[name], 2, data) for name, data in parts.items())
    return field(1, 2, field(1, 2, tag.encode()) + field(9, 2, field(1, 2, b"plugin")) + field(8, 2, body))


def event(step, *values, wall_time_s=0.0):
    data = field(1, 1, struct.pack("<d", wall_time_s)) + field(2, 0, varint(step))
    return data + (field(5, 2, b"".join(values)) if values else b"")


def framed(data):
    head = struct.pack("<Q", len(data))
    return head + struct.pack("<I", masked_crc32c(head)) + data + struct.pack("<I", masked_crc32c(data))


def bit_by_bit(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


class TestChecksum:
    @pytest.mark.parametrize(
        ("data", "crc"),
        [
            # RFC 3720, appendix B.4, and the usual check value.
            (bytes(32), 0x8A9136AA),
            (b"\xff" * 32, 0x62A8AB43),
            (bytes(range(32)), 0x46DD794E),
            (b"123456789", 0xE3069283),
            (b"", 0),
        ],
    )
    def test_known_values(self, data, crc):
        assert crc32c(data) == crc

    def test_batched_checksums_equal_single_ones(self):
        rng = random.Random(7)
        sizes = [0, 3, 4, 5, 63, 64, 65, 128, 129, 700, 4096, 4097, 65_536, *[44] * 100]
        parts = [rng.randbytes(size) for size in sizes]
        # RFC 3720's definition: bit by bit.
        assert crc32cs(parts) == list(map(bit_by_bit, parts))

    def test_several_batches(self, monkeypatch):
        monkeypatch.setattr(crc32c_module, "_MAX_BATCH_BYTES", 1000)
        parts = [bytes([value]) * 300 for value in range(20)]
        assert crc32cs(parts) == list(map(bit_by_bit, parts))


class TestFraming:
    def test_records_in_any_parts(self):
        data = b"".join(framed(b"x" * size) for size in (0, 1, 300, 5))
        for step in (1, 7, 1000):
            reader = RecordReader()
            records = [each for at in range(0, len(data), step) for each in reader.read(data[at : at + step])]
            assert [len(each.data) for each in records] == [0, 1, 300, 5]
            assert intact(records) == records

    def test_incomplete_record_waits_for_rest(self):
        reader, data = RecordReader(), framed(b"one") + framed(b"two")
        assert [each.data for each in reader.read(data[:-1])] == [b"one"]
        assert reader.read(b"") == []
        assert [each.data for each in reader.read(data[-1:])] == [b"two"]

    def test_long_records_are_skipped(self, monkeypatch):
        monkeypatch.setattr(tfrecord, "MAX_RECORD_BYTES", 100)
        data = framed(b"one") + framed(b"g" * 5000) + framed(b"two") + framed(b"g" * 101) + framed(b"three")
        for step in (1, 64, 10_000):
            reader = RecordReader()
            records = [each.data for at in range(0, len(data), step) for each in reader.read(data[at : at + step])]
            assert records == [b"one", b"two", b"three"]

    def test_wrong_length_ends_reading(self):
        reader = RecordReader()
        broken = bytearray(framed(b"two"))
        broken[0] ^= 1
        assert [each.data for each in reader.read(framed(b"one") + bytes(broken) + framed(b"three"))] == [b"one"]
        assert reader.broken
        assert reader.read(framed(b"four")) == []

    def test_only_records_with_mark_are_returned(self, monkeypatch):
        monkeypatch.setattr(tfrecord, "MAX_RECORD_BYTES", 100)
        parts = (b"a lo", b"ss", b"the loss", b"loss " * 50, b"other", b"", b"a gloss", b"accuracy")
        data = b"".join(map(framed, parts))
        for step in (1, 40, 10_000):
            reader = RecordReader((b"loss", b"acc"))
            records = [each.data for at in range(0, len(data), step) for each in reader.read(data[at : at + step])]
            assert records == [b"the loss", b"a gloss", b"accuracy"]

    def test_broken_data_is_detected(self):
        broken = bytearray(framed(b"two"))
        broken[13] ^= 1
        records = RecordReader().read(bytes(broken) + framed(b"one"))
        assert len(records) == 2
        assert [each.data for each in intact(records)] == [b"one"]


def outcome(data):
    try:
        return read_event(data)
    except EventError as error:
        return type(error)


class TestMessages:
    def test_scalars_in_all_their_forms(self):
        values = (
            simple("a", 0.5),
            tensor("b", 1, content=struct.pack("<f", 0.25)),
            tensor("c", 1, floats=struct.pack("<f", 0.125)),
            tensor("d", 2, content=struct.pack("<d", 2.5)),
            tensor("e", 2, doubles=struct.pack("<d", 3.5)),
            tensor("f", 19, content=struct.pack("<e", 1.5)),
        )
        expected = (("a", 0.5), ("b", 0.25), ("c", 0.125), ("d", 2.5), ("e", 3.5), ("f", 1.5))
        assert read_event(event(7, *values, wall_time_s=9.0)) == Event(step=7, wall_time_s=9.0, scalars=expected)

    @pytest.mark.parametrize("step", [0, 1, 127, 128, 20_000, 2**62])
    def test_fast_path_equals_general_decoder(self, step, monkeypatch):
        named = tensor("loss", 1, content=struct.pack("<f", 0.25))
        # As TensorFlow writes it: fields in the order of their numbers.
        body = field(1, 2, b"loss") + field(8, 2, b"\x08\x01\x12\x00\x22\x04" + struct.pack("<f", 0.75))
        written = [simple("loss", 0.5), named, field(1, 2, body), field(1, 2, body + field(9, 2, b"plugin"))]
        events = [event(step, value, wall_time_s=1.5) for value in written]
        expected = [Event(step=step, wall_time_s=1.5, scalars=(("loss", value),)) for value in (0.5, 0.25, 0.75, 0.75)]
        assert list(map(read_event, events)) == expected
        monkeypatch.setattr(event_message, "_usual", lambda data: None)
        assert list(map(read_event, events)) == expected

    def test_events_that_leave_fast_path(self, monkeypatch):
        whole = event(5, simple("loss", 0.5), wall_time_s=1.5)
        others = [whole + field(3, 2, b"more"), event(5, simple("loss", 0.5), simple("loss", 0.75)), whole[:-1]]
        read = list(map(outcome, others))
        monkeypatch.setattr(event_message, "_usual", lambda data: None)
        assert read == list(map(outcome, others))

    def test_other_values_are_ignored(self):
        values = (
            tensor("two", 1, floats=struct.pack("<ff", 1, 2)),
            tensor("text", 7, content=b"abc"),
            field(1, 2, b""),
        )
        assert read_event(event(7, *values, simple("a", 1.0))).scalars == (("a", 1.0),)
        assert read_event(b"") == Event(step=0, wall_time_s=0.0, scalars=())

    @pytest.mark.parametrize(
        "data",
        [
            b"\x08",
            b"\xff" * 12,
            field(5, 2, b"abcdef")[:-1],
            field(1, 3, b""),
            field(5, 2, field(1, 2, field(2, 5, b"abc"))),
            field(2, 0, varint(2**64 - 5)),
        ],
    )
    def test_bytes_that_are_no_event_raise(self, data):
        with pytest.raises(EventError):
            read_event(data)


def records_of(*events, role=Role.TRAINING):
    return EventReader(role).read(b"".join(map(framed, events)))


class TestReader:
    def test_losses_with_the_seconds_between_them(self):
        events = [event(step, simple("loss", 1.0), wall_time_s=100.0 + step / 8) for step in (0, 4, 8)]
        assert records_of(*events) == [
            StepLoss(step=0, loss=1.0),
            StepLoss(step=4, loss=1.0, seconds=0.5),
            StepLoss(step=8, loss=1.0, seconds=0.5),
        ]

    def test_a_clock_that_went_back_gives_no_seconds(self):
        events = [
            event(step, simple("loss", 1.0), wall_time_s=at_s) for step, at_s in ((0, 50.0), (4, 10.0), (8, 12.0))
        ]
        assert [record.seconds for record in records_of(*events)] == [None, None, 2.0]

    def test_only_first_loss_tag_is_read(self):
        records = records_of(
            event(1, simple("regularization_loss", 9.0), simple("Train/Loss", 1.0), simple("loss", 2.0))
        )
        assert records == [StepLoss(step=1, loss=1.0)]
        assert records_of(event(1, simple("loss_1", 3.0))) == [StepLoss(step=1, loss=3.0)]

    def test_epochs_are_no_steps_and_rates_are_rates(self):
        records = records_of(event(3, simple("epoch_loss", 0.5)), event(100, simple("global_step/sec", 8.0)))
        assert records == [LossOnly(loss=0.5, epoch=3), StepsPerSecond(rate=8.0)]

    def test_keras_losses_of_batches_are_means_of_their_epoch(self):
        steps = [event(step, simple("batch_loss", 1.0)) for step in (5, 10, 15)]
        records = records_of(*steps[:2], event(0, simple("epoch_loss", 1.0)), steps[2])
        assert [record.mean_since for record in records if isinstance(record, StepLoss)] == [0, 0, 10]
        assert records_of(event(5, simple("loss", 1.0)))[0].mean_since is None

    def test_evaluations_in_one_event_or_in_several(self):
        several = [event(5, simple("accuracy", 0.5)), event(5, simple("loss", 2.0)), event(9, simple("loss", 1.0))]
        one = event(5, simple("loss", 2.0), simple("accuracy", 0.5))
        first = Validation(step=5, loss=2.0, accuracy=0.5)
        for events in (several, [one, several[2]]):
            records = records_of(*events, role=Role.EVALUATION)
            assert [each for each in records if isinstance(each, Validation)] == [
                first,
                Validation(step=9, loss=1.0, accuracy=None),
            ]
            assert [each.step for each in records if isinstance(each, StepLoss)] == [5, 9]

    def test_broken_or_unknown_records_are_skipped(self):
        broken = bytearray(framed(event(1, simple("loss", 1.0))))
        broken[-5] ^= 1
        data = bytes(broken) + framed(b"\xff loss") + framed(event(2, simple("loss", 2.0)))
        assert EventReader(Role.TRAINING).read(data) == [StepLoss(step=2, loss=2.0)]


class TestFolders:
    def write(self, path, *events):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(b"".join(map(framed, events)))

    def test_new_and_growing_files_are_read(self, tmp_path):
        folder = EventFolder([tmp_path / "later", tmp_path])
        folder.search()
        assert folder.read() == []
        one = tmp_path / "logs" / "run" / "train" / "events.out.tfevents.1.host"
        self.write(one, event(1, simple("loss", 1.0)))
        assert folder.read() == []
        folder.search()
        assert [record.step for record in folder.read()] == [1]
        self.write(one, event(2, simple("loss", 1.0)))
        self.write(one.parents[1] / "validation" / "events.out.tfevents.2.host", event(2, simple("loss", 3.0)))
        folder.search()
        assert folder.read() == [StepLoss(step=2, loss=1.0), Validation(step=2, loss=3.0)]
        folder.close()

    def test_evaluations_give_steps_if_training_has_none(self, tmp_path):
        self.write(tmp_path / "eval" / "events.out.tfevents.1.host", event(8, simple("loss", 3.0)))
        folder = EventFolder([tmp_path])
        folder.search()
        assert folder.read() == [Validation(step=8, loss=3.0), StepLoss(step=8, loss=None)]
        folder.close()

    def test_rewritten_file_is_read_from_start(self, tmp_path):
        path = tmp_path / "events.out.tfevents.1.host"
        self.write(path, event(1, simple("loss", 1.0)), event(2, simple("loss", 1.0)))
        folder = EventFolder([tmp_path])
        folder.search()
        assert len(folder.read()) == 2
        path.unlink()
        self.write(path, event(3, simple("loss", 1.0)))
        assert folder.read() == [StepLoss(step=3, loss=1.0)]
        folder.close()

    def test_search_of_large_tree_is_limited(self, tmp_path, monkeypatch):
        monkeypatch.setattr(event_folder, "MAX_ENTRIES", 10)
        for number in range(30):
            (tmp_path / f"{number:02}").mkdir()
        self.write(tmp_path / "00" / "events.out.tfevents.1.host", event(1, simple("loss", 1.0)))
        folder = EventFolder([tmp_path])
        folder.search()
        assert folder.read() == []

    def test_search_limits_hold_per_folder(self, tmp_path, monkeypatch):
        monkeypatch.setattr(event_folder, "MAX_ENTRIES", 10)
        own, checkpoints = tmp_path / "job", tmp_path / "checkpoints"
        checkpoints.mkdir()
        for number in range(30):
            (checkpoints / f"model.ckpt-{number}").touch()
        self.write(own / "logs" / "events.out.tfevents.1.host", event(1, simple("loss", 1.0)))
        for folders in ([own, checkpoints], [checkpoints, own]):
            folder = EventFolder(folders)
            folder.search()
            assert folder.read() == [StepLoss(step=1, loss=1.0)]
            folder.close()

    def test_slow_search_continues_next_time(self, tmp_path):
        for number in (1, 2):
            path = tmp_path / "logs" / f"run{number}" / f"events.out.tfevents.{number}.host"
            self.write(path, event(number, simple("loss", 1.0)))
        folder = EventFolder([tmp_path])
        records = []
        for _ in range(4):
            folder.search_for(0.0)
            records.append(len(folder.read()))
        # The folder, the one below it, and then the two with files, in whatever order.
        assert records == [0, 0, 1, 1]
        self.write(tmp_path / "events.out.tfevents.3.host", event(3, simple("loss", 1.0)))
        folder.search_for(0.0)
        folder.search_for(0.0)
        assert folder.read() == [StepLoss(step=3, loss=1.0)]
        folder.close()

    def test_links_to_folders_are_not_followed(self, tmp_path):
        self.write(tmp_path / "elsewhere" / "events.out.tfevents.1.host", event(1, simple("loss", 1.0)))
        (tmp_path / "job").mkdir()
        (tmp_path / "job" / "link").symlink_to(tmp_path / "elsewhere")
        folder = EventFolder([tmp_path / "job"])
        folder.search()
        assert folder.read() == []

    def test_search_repeats_after_interval(self, tmp_path):
        reader = JobReader(LogFollower(tmp_path / "log"), [tmp_path])
        assert reader.read(100.0) == []
        self.write(tmp_path / "events.out.tfevents.1.host", event(1, simple("loss", 1.0)))
        assert reader.read(101.0) == []
        assert reader.read(106.0) == [StepLoss(step=1, loss=1.0)]

    def test_event_files_are_ignored_once_log_has_steps(self, tmp_path):
        reader, file = JobReader(LogFollower(tmp_path / "log"), [tmp_path]), tmp_path / "events.out.tfevents.1.host"
        self.write(file, event(1, simple("loss", 1.0)))
        assert reader.read(100.0) == [StepLoss(step=1, loss=1.0)]
        (tmp_path / "log").write_text("INFO:tensorflow:loss = 0.5, step = 2\n")
        self.write(file, event(1, simple("loss", 1.0)), event(7, simple("loss", 9.0)))
        assert reader.read(101.0) == [StepLoss(step=2, loss=0.5)]
        self.write(tmp_path / "events.out.tfevents.2.host", event(8, simple("loss", 9.0)))
        assert reader.read(110.0) == []

    def test_catching_up_searches_at_once(self, tmp_path):
        reader = JobReader(LogFollower(tmp_path / "log"), [tmp_path])
        assert reader.read(100.0) == []
        self.write(tmp_path / "events.out.tfevents.1.host", event(1, simple("loss", 1.0)))
        assert list(reader.catch_up(101.0)) == [StepLoss(step=1, loss=1.0)]

    def test_impossible_step_counts_are_dropped(self, tmp_path):
        (tmp_path / "log").write_bytes(b"Epoch 999999999/999999999\n99999999999/99999999999 - 1s - loss: 0.5\n")
        self.write(tmp_path / "events.out.tfevents.1.host", event(2**62, simple("loss", 1.0)))
        reader = JobReader(LogFollower(tmp_path / "log"), [tmp_path])
        records = [*reader.read(100.0), *reader.catch_up(101.0)]
        assert [record for record in records if isinstance(record, StepLoss)] == []

    def test_plausible_records_next_to_impossible_ones_are_kept(self, tmp_path):
        lines = [
            f"INFO:tensorflow:loss = {loss}, step = {step}" for loss, step in ((3.0, 10), (9.0, 10**16), (2.0, 20))
        ]
        (tmp_path / "log").write_text("\n".join(lines) + "\n")
        records, profile = JobReader(LogFollower(tmp_path / "log"), [tmp_path]).read(100.0), JobProfile()
        assert [(record.step, record.loss) for record in records] == [(10, 3.0), (20, 2.0)]
        for record in records:
            profile.feed(record)
        assert (profile.iteration, profile.loss) == (20, 2.0)

    @pytest.mark.parametrize("logged", [b"", b"no step is logged\n" * 50])
    def test_catching_up_reads_more_than_one_poll(self, tmp_path, monkeypatch, logged):
        monkeypatch.setattr(follower, "MAX_POLL_BYTES", 200)
        (tmp_path / "log").write_bytes(logged)
        for name in ("1.host", "2.host"):
            events = [event(step, simple("loss", 1.0)) for step in range(30)]
            self.write(tmp_path / f"events.out.tfevents.{name}", *events)
        reader = JobReader(LogFollower(tmp_path / "log"), [tmp_path])
        assert [record.step for record in reader.catch_up(0.0)].count(29) == 2
        assert list(reader.catch_up(1.0)) == []

    def test_catching_up_reads_a_log_to_its_end_before_event_files(self, tmp_path, monkeypatch):
        monkeypatch.setattr(follower, "MAX_POLL_BYTES", 200)
        (tmp_path / "log").write_bytes(b"nothing yet\n" * 50 + b"INFO:tensorflow:loss = 0.5, step = 7\n")
        self.write(tmp_path / "events.out.tfevents.1.host", event(1, simple("loss", 1.0)))
        reader = JobReader(LogFollower(tmp_path / "log"), [tmp_path])
        assert list(reader.catch_up(0.0)) == [StepLoss(step=7, loss=0.5)]


def test_tags_of_other_libraries():
    data = b"".join(
        framed(event(step, simple(tag, value)))
        for step, tag, value in ((10, "Loss/total_loss", 0.5), (10, "val/loss", 0.25), (10, "eval/accuracy", 0.75))
    )
    assert EventReader(Role.TRAINING).read(data) == [
        StepLoss(step=10, loss=0.5),
        Validation(step=10, loss=0.25),
        Validation(step=10, accuracy=0.75),
    ]


def test_held_out_values_alone_are_progress():
    assert EventReader(Role.TRAINING).read(framed(event(10, simple("val_loss", 0.25)))) == [
        StepLoss(step=10, loss=None),
        Validation(step=10, loss=0.25),
    ]
