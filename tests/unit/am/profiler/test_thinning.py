"""Many ordinary lines or records that come at once: what is left out changes nothing that a job's profile shows."""

import math
import struct

import pytest

from am.profiler import parser, tfrecord
from am.profiler.backlog_limits import BACKLOG_BYTES
from am.profiler.event_format import EventReader, Role
from am.profiler.parser import LogReader
from am.profiler.profile import JobProfile
from am.profiler.records import CheckpointSaved, Skipped, StepLoss, Validation
from themis.cluster import Level
from themis_lab.bench.profiler_logs import Kind, write

SIZE = 400_000
LOGS = (Kind.ESTIMATOR, Kind.LINES, Kind.CNN)
TF = "INFO:tensorflow:"


def profile_of(records):
    profile = JobProfile()
    profile.started(1, Level.SLOT)
    for record in records:
        profile.feed(record)
    return profile


def at_once(data):
    return LogReader().read(data)


def bit_by_bit(data):
    """In parts that are too short for anything to be left out."""
    reader, lines = LogReader(), data.splitlines(keepends=True)
    return [record for at in range(0, len(lines), 100) for record in reader.read(b"".join(lines[at : at + 100]))]


def facts(profile):
    return profile.iteration, profile.loss, profile.validation_loss, profile.accuracy, profile.diverged


def estimator(steps, first=1):
    return "".join(
        f"{TF}global_step/sec: 10.5\n{TF}loss = {2.0 / step:.6g}, step = {step} (0.095 sec)\n"
        for step in range(first, first + steps)
    )


class TestLogs:
    @pytest.mark.parametrize("kind", LOGS)
    def test_thinned_dense_log_gives_same_profile(self, kind):
        data = write(kind, 3, SIZE)
        some, every = at_once(data), bit_by_bit(data)
        assert sum(isinstance(record, Skipped) for record in some) == 1
        assert len(some) < len(every) / 3
        assert not any(isinstance(record, Skipped) for record in every)
        one, two = profile_of(some), profile_of(every)
        assert facts(one) == facts(two)
        assert one.iteration_s == pytest.approx(two.iteration_s, rel=0.01)
        assert [pace.count for pace in one.paces.values()] == [pace.count for pace in two.paces.values()]

    @pytest.mark.parametrize("kind", [Kind.NOISE, Kind.BARS, Kind.ESTIMATOR_AMONG, Kind.LINES_AMONG, Kind.CNN_AMONG])
    def test_sparse_log_is_read_completely(self, kind):
        data = write(kind, 3, SIZE)
        some = at_once(data)
        assert not any(isinstance(record, Skipped) for record in some)
        if kind is not Kind.BARS:
            # Of a bar the last drawing in the data counts.
            assert some == bit_by_bit(data)

    def test_other_lines_are_always_read(self):
        odd = (
            f"{TF}Validation (step 3000): loss = 0.5, global_step = 3000, accuracy = 0.75\n"
            "INFO:themis:checkpoint iteration = 3000, seconds = 0.5, bytes = 100\n"
            f"{TF}loss = nan, step = 3001 (0.095 sec)\n"
        )
        text = estimator(3000) + odd + estimator(3000, 3002)
        records = at_once(text.encode())
        assert sum(isinstance(record, Skipped) for record in records) == 2
        assert [type(record) for record in records if isinstance(record, Validation | CheckpointSaved)] == [
            Validation,
            CheckpointSaved,
        ]
        assert sum(isinstance(record, StepLoss) and math.isnan(record.loss) for record in records) == 1
        assert facts(profile_of(records)) == facts(profile_of(bit_by_bit(text.encode())))

    def test_nan_losses_between_finite_ones_are_no_divergence(self):
        text = estimator(3000)
        for step in range(3001, 30_001, 3000):
            text += f"{TF}loss = nan, step = {step} (0.095 sec)\n" + estimator(2999, step + 1)
        records = at_once(text.encode())
        assert sum(isinstance(record, Skipped) for record in records) == 10
        profile = JobProfile()
        for record in records:
            profile.feed(record)
            assert profile.diverged is None
        assert profile.iteration == 30_000

    def test_skipped_part_makes_no_interval(self):
        """Seconds since the line before, that was left out, must not be divided by the steps since the gap began."""
        text = "".join(f"{TF}loss = 0.5, step = {10 * step} (2.000 sec)\n" for step in range(1, 5000))
        records = at_once(text.encode())
        assert any(isinstance(record, Skipped) for record in records)
        profile = JobProfile()
        profile.started(1, Level.SLOT)
        for record in records:
            profile.feed(record)
            for pace in profile.paces.values():
                assert pace.iteration_s == pytest.approx(0.2)
                assert pace.spread_s == pytest.approx(0.0)

    def test_successive_keras_fits_add_up(self):
        fit = "".join(f"Epoch {epoch}/2000\n8/8 - 1s - 9ms/step - loss: {1 / epoch:.4f}\n" for epoch in range(1, 2001))
        records = at_once((fit * 3).encode())
        assert sum(isinstance(record, Skipped) for record in records) >= 2
        assert facts(profile_of(records)) == facts(profile_of(bit_by_bit((fit * 3).encode())))
        assert profile_of(records).iteration == 3 * 2000 * 8
        steps = [record.step for record in records if isinstance(record, StepLoss)]
        assert steps == sorted(steps)
        assert all(step % 8 == 0 for step in steps)

    def test_last_loss_before_many_rates_is_read(self):
        lines = []
        for step in range(1, 5500):
            lines += [f"{TF}loss = {900 / step:.4f}, step = {step}\n"] if step % 1000 == 0 else []
            lines += [f"{TF}global_step/sec: 2.34092\n"]
        data = "".join(lines).encode()
        records = at_once(data)
        assert sum(isinstance(record, Skipped) for record in records) == 1
        assert facts(profile_of(records)) == facts(profile_of(bit_by_bit(data)))
        assert facts(profile_of(records))[:2] == (5000, 0.18)

    def test_finite_loss_before_many_rates_ends_divergence(self):
        rates = f"{TF}global_step/sec: 2.34092\n" * 2000
        none = f"{TF}loss = nan, step = %d\n"
        text = estimator(100) + none % 101 + rates + f"{TF}loss = 0.5, step = 102\n" + rates + none % 103
        records = at_once(text.encode())
        assert sum(isinstance(record, Skipped) for record in records) == 1
        assert profile_of(records).diverged is None

    @pytest.mark.parametrize("every", [1, 10, 700])
    def test_last_keras_validation_is_read_if_epochs_skip_it(self, every):
        text = "Epoch 1/2000\n8/8 - 1s - 9ms/step - loss: 1.0\n"
        for epoch in range(2, 2001):
            held_out = f" - val_accuracy: 0.5 - val_loss: {2 / epoch:.4f}" if epoch % every == 0 else ""
            text += f"Epoch {epoch}/2000\n8/8 - 1s - 9ms/step - loss: {1 / epoch:.4f}{held_out}\n"
        records = at_once(text.encode())
        assert sum(isinstance(record, Skipped) for record in records) == 1
        assert facts(profile_of(records)) == facts(profile_of(bit_by_bit(text.encode())))

    def test_last_keras_loss_before_epochs_without_loss_is_read(self):
        text = "Epoch 1/2000\n8/8 - 1s - 9ms/step - loss: 1.0\n"
        for epoch in range(2, 2001):
            text += f"Epoch {epoch}/2000\n8/8 - 1s - 9ms/step - accuracy: 0.5{' - loss: 0.25' * (epoch == 1300)}\n"
        records = at_once(text.encode())
        assert sum(isinstance(record, Skipped) for record in records) == 1
        assert facts(profile_of(records)) == facts(profile_of(bit_by_bit(text.encode())))
        assert profile_of(records).loss == 0.25

    @pytest.mark.parametrize("back", [1, 20, 150, 1000])
    @pytest.mark.parametrize(
        "form",
        [
            TF + "loss = 0.5, step = {0} (0.100 sec)\n",
            "{0}\timages/sec: 10.0 +/- 0.0 (jitter = 0.0)\t7.5\n",
            "Epoch {0}/9000\n8/8 - 1s - 9ms/step - loss: 0.5\n",
        ],
    )
    def test_unannounced_restart_keeps_progress(self, form, back):
        first = "Epoch 1/9000\n8/8 - 1s - 9ms/step - loss: 0.5\n" if form.startswith("Epoch") else ""
        for more in (0, 10, 400):
            steps = [*range(2, 3000), *range(3000 - back, 3000 - back + more), *range(2500, 2510)]
            data = (first + "".join(form.format(step) for step in steps)).encode()
            some = at_once(data)
            assert any(isinstance(record, Skipped) for record in some)
            assert profile_of(some).iteration == profile_of(bit_by_bit(data)).iteration

    def test_alternating_formats_are_all_read(self):
        keras = "".join(f"Epoch {n}/2000\n8/8 - 1s - 9ms/step - loss: {1 / n:.4f}\n" for n in range(1, 2001))
        cnn = "".join(f"{n}\timages/sec: 10.0 +/- 0.0 (jitter = 0.0)\t{7 / n:.4f}\n" for n in range(10, 9000, 10))
        for text in (keras + estimator(2000) + cnn, cnn + estimator(2000) + keras, estimator(99) + cnn + keras):
            data = text.encode()
            assert facts(profile_of(at_once(data))) == facts(profile_of(bit_by_bit(data)))

    def test_tagged_lines_are_all_read(self):
        text = "".join(f"worker-{n % 2}: {TF}loss = 0.5, step = {n // 2}\n" for n in range(4000))
        assert at_once(text.encode()) == bit_by_bit(text.encode())

    def test_small_parts_are_all_read(self, monkeypatch):
        data = estimator(300).encode()
        assert len(data) < BACKLOG_BYTES
        assert at_once(data) == bit_by_bit(data)
        monkeypatch.setattr(parser, "BACKLOG_BYTES", 1000)
        assert at_once(data) == bit_by_bit(data), "there are too few for the ends that are kept"


def varint(value):
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def framed(data):
    head = struct.pack("<Q", len(data))
    crcs = (struct.pack("<I", tfrecord.masked_crc32c(part)) for part in (head, data))
    return head + next(crcs) + data + next(crcs)


def simple(value):
    return b"\x15" + struct.pack("<f", value)


def tensor(value):
    content = b"\x08\x01\x12\x00\x22\x04" + struct.pack("<f", value)
    return field(8, content) + field(9, field(1, field(1, b"scalars")))


def event(step, value, tag=b"Best/loss", form=simple):
    front = b"\x09" + struct.pack("<d", 1e9 + step / 8) + b"\x10" + varint(step)
    return framed(front + field(5, field(1, field(1, tag) + form(value))))


def events_at_once(data):
    return EventReader(Role.TRAINING).read(data)


def events_bit_by_bit(data):
    reader = EventReader(Role.TRAINING)
    return [record for at in range(0, len(data), 5000) for record in reader.read(data[at : at + 5000])]


class TestEvents:
    @pytest.mark.parametrize("form", [simple, tensor])
    @pytest.mark.parametrize("other", [b"", b"lr"])
    def test_thinned_dense_file_gives_same_profile(self, form, other):
        data = b"".join(
            event(step, 2.0 / step, b"loss", form) + (event(step, 0.1, other, form) if other else b"")
            for step in range(1, 6000)
        )
        some, every = events_at_once(data), events_bit_by_bit(data)
        assert len(some) < len(every) / 5
        assert len(every) == 5999
        one, two = profile_of(some), profile_of(every)
        assert facts(one) == facts(two)
        assert one.iteration_s == two.iteration_s == 0.125
        assert [pace.spread_s for pace in one.paces.values()] == [0.0]

    @pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
    def test_non_finite_loss_is_read(self, value):
        parts = [event(step, 2.0, b"loss") for step in range(1, 6000)]
        parts[4000] = event(4001, value, b"loss")
        records = events_at_once(b"".join(parts))
        assert [record.step for record in records if not math.isfinite(record.loss)] == [4001]
        assert [record.step for record in records][-1] == 5999

    def test_other_records_end_skipping(self):
        parts = [event(step, 2.0, b"loss") for step in range(1, 6000)]
        parts[3000:3000] = [framed(field(4, bytes(500)))]
        records = events_at_once(b"".join(parts))
        assert {record.step for record in records} >= set(range(3001, 6000))
        assert len(records) < 3500

    @pytest.mark.parametrize("form", [simple, tensor])
    @pytest.mark.parametrize("first", [True, False])
    def test_last_loss_before_many_other_scalars_is_read(self, form, first):
        data = b"".join(event(1, 1.5, b"layer/weight_norm", form) for _ in range(0 if first else 300))
        for step in range(100, 3001, 100):
            data += event(step, 300 / step, b"loss", form)
            data += b"".join(event(step, 1.5, b"layer_%03d/weight_norm" % layer, form) for layer in range(300))
        some, every = events_at_once(data), events_bit_by_bit(data)
        assert facts(profile_of(some)) == facts(profile_of(every))
        assert facts(profile_of(some))[:2] == (3000, pytest.approx(0.1))
        # Before the first loss the reader does not know its tag.
        assert len(some) < 5 if first else some == every

    def test_part_cut_anywhere_yields_last_complete_loss(self):
        group = event(100, 1.0, b"loss") + event(100, 1.0, b"layer/norm") * 400
        last = event(200, 0.5, b"loss")
        for size in (*range(len(last)), len(last) + 20_000):
            reader = EventReader(Role.TRAINING)
            data = group * 4 + last + event(200, 1.0, b"layer/norm") * 400
            cut = len(group) * 4 + size
            steps = [record.step for record in reader.read(data[:cut])]
            assert steps[-1] == (200 if size > len(last) else 100)
            assert len(steps) == 2
            assert [record.step for record in reader.read(data[cut:])] == ([] if size > len(last) else [200])

    def test_first_loss_tag_is_kept(self):
        group = event(1, 2.0, b"loss") + event(1, 1.0, b"layer/norm") * 400 + event(1, 9.0, b"total_loss")
        assert {record.loss for record in events_at_once(group * 5)} == {2.0}
        late = event(1, 1.0, b"layer/norm") * 400 + group * 5
        assert {record.loss for record in events_at_once(late)} == {2.0}

    def test_last_evaluation_before_many_other_scalars_is_read(self):
        others = event(9, 1.5, b"layer/weight_norm") * 600
        data = b"".join(event(step, step / 8, b"loss") + event(step, 0.5, b"accuracy") + others for step in range(4))
        reader = EventReader(Role.EVALUATION)
        assert facts(profile_of(reader.read(data))) == (3, pytest.approx(math.nan, nan_ok=True), 0.375, 0.5, None)

    def test_skipping_begins_at_any_part_boundary(self):
        data = b"".join(event(step, 2.0, b"loss") for step in range(1, 6000))
        for cut in range(40_000, 40_070):
            reader = EventReader(Role.TRAINING)
            records = reader.read(data[:cut]) + reader.read(data[cut:])
            assert len(records) < 3000
            assert records[-1] == StepLoss(step=5999, loss=2.0, seconds=0.125)

    def test_wrong_length_ends_file_while_skipping(self):
        parts = [event(step, 2.0, b"loss") for step in range(1, 6000)]
        parts[5990] = b"\1" + parts[5990][1:]
        assert events_at_once(b"".join(parts))[-1].step == 5990
