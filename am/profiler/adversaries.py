"""The losses of two networks that work against each other. Neither says how good a model is.

Examples: `d_loss: 0.69 g_loss: 0.81`; `G_GAN: 1.2 G_L1: 23.4 D_real: 0.6 D_fake: 0.7` of pix2pix and CycleGAN;
`l_g_gan: 0.1 l_d_real: 0.7` of ESRGAN.
"""

from __future__ import annotations

import re

from am.profiler.numbers import NUMBER

_TERM = r"(?:gan|real|fake|adv|hinge|feat|vgg|percep|pix|rec|idt|cycle|l1|l2|total|[ab])"
_DISCRIMINATOR, _GENERATOR = (
    re.compile(
        rf"(?<![\w./-])(?:loss[ _/-]?{words}|{words}[ _/-]?loss|(?:l_)?{terms})(?:_(?:step|epoch))?[\s:=]{{1,3}}"
        rf"(?={NUMBER})"
    )
    for words, terms in (
        ("(?:dis|disc|discriminator|critic|d)", rf"d_{_TERM}"),
        ("(?:gen|generator|g)", rf"(?:g_{_TERM}|gan)"),
    )
)
_MARK = re.compile(r"\b(?:l_)?d_[a-z]")


def may_hold_adversaries(text: str) -> bool:
    """Return whether a line in lower case may name such losses without the word."""
    return "d_" in text and _MARK.search(text) is not None


def adversaries(text: str) -> frozenset[int]:
    """Return where such losses begin in a line in lower case. Empty unless the line has those of both networks."""
    sides = [[found.start() for found in side.finditer(text)] for side in (_DISCRIMINATOR, _GENERATOR)]
    return frozenset(sides[0] + sides[1]) if all(sides) else frozenset()
