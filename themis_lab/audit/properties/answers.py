"""Answers: the auction of every market ends with an outcome. A round whose auction raises an error has no winners."""

from __future__ import annotations

from themis_lab.audit.case import Case


def answers(case: Case) -> list[str]:
    """The auction solves one problem for the market and one for each winner. An exception is a violation."""
    winners = [None, *sorted(case.outcome.wins)]
    solved = [problem.without for problem in case.outcome.problems]
    return [] if solved == winners else [f"problems solved are without {solved}, winners are {winners[1:]}"]
