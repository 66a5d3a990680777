"""Lines that say how far a program is, and no loss: rewards of reinforcement learning, and ends of epochs.

Rewards do not say which job is best without their direction, so they can be declared as the metric. Examples:
`Step: 12000. Time Elapsed: 33.3 s. Mean Reward: 1.2` of Unity ML-Agents, the table of Spinning Up as one line (`Epoch=3
AverageEpRet=21.3 LossPi=-0.01`), `global_step=123, episodic_return=22.0`, `Episode 10  Average reward: 12.3`. An end of
an epoch is `End of epoch 3 / 200`, as pix2pix and CycleGAN print it.
"""

from __future__ import annotations

import re

from msgspec.structs import replace

from am.profiler.line_places import LinePlace, line_place
from am.profiler.numbers import NUMBER

_REWARD = re.compile(
    r"(?:reward|return|ep_?rew|ep_?ret)s?(?:_[a-z]{1,20}){0,2}(?: per [a-z ]{1,30})?"
    rf"(?P<sep>\s*[:=|]\s*|\s+)\[?(?P<value>{NUMBER})(?![\w%])"
)
_EPISODE = re.compile(r"(?<!\w)(?:episode|num_episodes) *[:=#]? *(?P<count>[0-9]{1,12})(?![\w%/]|\.\d)")
_END = re.compile(r"\W*(?:end of|finished|completed) epoch[ :#]*[0-9]{1,9}(?: *(?:/|of) *[0-9]{1,9})?(?![\w.]).*")


def progress_place(line: str) -> LinePlace | None:
    """Return the place of a line with a reward, or of an end of an epoch. None for any other line."""
    text = line.replace('"', "").replace("'", "").lower()
    if "epoch" in text and _END.fullmatch(text):
        place = line_place(text, len(text))
        return None if place.epoch is None else LinePlace(epoch=place.epoch, epochs=place.epochs)
    if "rew" not in text and "ret" not in text:
        return None
    reward = _REWARD.search(text)
    if reward is None or not (reward["sep"].strip() or "." in reward["value"]):
        return None
    place = line_place(text, reward.start())
    if place.step is None and (episode := _EPISODE.search(text)):
        place = replace(place, step=int(episode["count"]), steps=None, in_epoch=False)
    return None if place.step is None and place.epoch is None else place
