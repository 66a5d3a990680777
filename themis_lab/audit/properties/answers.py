"""Answers: the auction of every market comes to an end with an outcome. A round whose auction raises has no winners."""

from __future__ import annotations

from themis_lab.audit.case import Case


def answers(case: Case) -> list[str]:
    """One problem for the market and one for each winner; an exception on the way is the finding."""
    winners = [None, *sorted(case.outcome.wins)]
    solved = [problem.without for problem in case.outcome.problems]
    return [] if solved == winners else [f"problems solved are without {solved}, winners are {winners[1:]}"]
