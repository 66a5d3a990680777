"""Every kind of event is one sentence for people, whatever its detail lacks."""

import pytest

from themis.event_words import SENTENCES, sentence
from themis.events import EMITTERS
from themis.lifecycle import AppState, JobState

GPUS = ["m0/0", "m0/1"]
# The fields of docs/reference/events.md, all at once: a sentence takes those of its kind.
WHOLE = {
    "name": "lr-search",
    "user": "ada",
    "by": "root",
    "jobs": 8,
    "demand_max_gpus": 16,
    "reason": "a reason",
    "state": "RUNNING",
    "diagnostics": "",
    "attempt": 1,
    "machine_id": "m0",
    "gpus": GPUS,
    "gpu": GPUS[0],
    "round_id": 7,
    "reasons": ["demand"],
    "rho": {"app-0001": 1.0},
    "apps": ["app-0001"],
    "bids": {},
    "absent": {},
    "bidders": 2,
    "auction": {"app-0001": {"m0": 2}},
    "leftovers": {},
    "usable_left": 1,
    "outcome": "granted",
    "expires_at_s": 160.0,
    "job_id": "lr-0.1",
    "tasks": 2,
    "iteration": 40,
    "exit_codes": [1, 75],
    "seconds": 2.5,
    "requested": True,
    "loss": 0.25,
    "accuracy": 0.9,
    "iteration_s": 0.5,
    "waited_s": 30.0,
    "restarts": 1,
    "lines_seen": 12,
    "first_line": "epoch one",
    "from_gpus": 2,
    "to_gpus": 4,
    "phase": 0,
    "phases": 3,
    "running": ["lr-0.1"],
    "stopped": [],
    "best": "lr-0.1",
    "action": "logs_read",
    "problem": "no JSON",
    "archives": 2,
    "policy": "themis",
    "since_start_s": 3.0,
    "stops": 1,
}


@pytest.mark.parametrize("kind", EMITTERS)
@pytest.mark.parametrize("detail", [WHOLE, {}, dict.fromkeys(WHOLE), {key: [None] for key in WHOLE}])
def test_every_kind_has_one_sentence(kind, detail):
    text = sentence(kind, detail, 100.0)
    assert "_" not in text
    assert not [part for part in ("None", "{", "}", "  ", "\n") if part in text]
    assert text[0].isupper() or text.startswith("lr-")
    assert not text.endswith((".", ":", " ", ","))


def test_table_has_the_known_kinds_only():
    assert SENTENCES.keys() == EMITTERS.keys()


def test_every_state_has_words():
    for kind, states in (("app_state", AppState), ("job_state", JobState)):
        texts = {sentence(kind, {"state": state, "job_id": "job-0"}) for state in states}
        assert len(texts) == len(states)
        assert not [text for text in texts if "in state" in text]


@pytest.mark.parametrize(
    ("kind", "detail", "text"),
    [
        ("lease_revoked", {"gpu": GPUS, "reason": "m0 is lost"}, "The app lost 2 GPUs (m0/0, m0/1): m0 is lost"),
        ("lease_granted", {"gpu": "m0/0", "expires_at_s": 160.0}, "The app got GPU m0/0 for 60.0 s"),
        (
            "lease_renewed",
            {"gpu": "m0/0", "job_id": "lr-0.1", "reason": "x"},
            "The app keeps GPU m0/0 until lr-0.1 ends",
        ),
        ("lease_granted", {"gpu": [f"m0/{at}" for at in range(8)]}, "The app got 8 GPUs (m0/0, m0/1, m0/2 and 5 more)"),
        (
            "tasks_ended",
            {"job_id": "lr-0.1", "gpus": GPUS, "requested": True, "iteration": 40},
            "lr-0.1 stopped on 2 GPUs (m0/0, m0/1) as requested; its newest checkpoint is of iteration 40",
        ),
        (
            "tasks_ended",
            {"job_id": "lr-0.1", "gpus": GPUS[:1], "exit_codes": [0, 1]},
            "lr-0.1 ended on GPU m0/0, with exit code 0, 1",
        ),
        ("app_state", {"state": "FAILED", "diagnostics": "no luck"}, "The app failed: no luck"),
        ("app_kill_wanted", {"user": "ada", "reason": "wrong data"}, "The app is to be killed by ada: wrong data"),
        ("job_restarted", {"job_id": "job-1", "reason": "a {brace}"}, "job-1 is started again: a {brace}"),
        ("resize", {"job_id": "job-1", "from_gpus": 2, "to_gpus": 1}, "job-1 went from 2 to 1 GPU"),
        (
            "metric_unread",
            {"job_id": "job-1", "lines_seen": 12, "first_line": "hello {}"},
            "job-1 has logged no metric that can be read: 12 lines seen, none understood; first line: hello {}",
        ),
        ("of another version", {"a": 1}, 'of another version {"a": 1}'),
    ],
)
def test_sentence_names_what_happened(kind, detail, text):
    assert sentence(kind, detail, 100.0) == text


def test_devices_are_called_as_in_their_cluster():
    assert sentence("lease_granted", {"gpu": GPUS}, noun="device") == "The app got 2 devices (m0/0, m0/1)"


def test_archived_events_are_told_by_their_apps_or_their_number() -> None:
    told = [sentence("events_archived", {"apps": apps, "events": 9}) for apps in (2, 0)]
    assert told == [f"{what} left the log for the archive" for what in ("Events of 2 ended apps", "Old events (9)")]
