"""`themis reproduce`: repeat the paper's evaluation on the simulator, and compare the results with the paper's."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from themis.errors import InputError
from themis_cli.parsers import Subcommands

if TYPE_CHECKING:
    from themis_cli.reproduce_progress import ProgressLine
    from themis_lab.paper.output import Written
    from themis_lab.paper.port import Done, Experiment, Findings, Scale, Shown

    _Done = tuple[Shown, Findings, Written | None]
    _Results = Iterable[tuple[Experiment, list[Done]]]

_ALL = "all"
_SEEDS = {"quick": 3, "paper": 5}


def add_to(commands: Subcommands) -> None:
    """Add `reproduce`."""
    parser = commands.add_parser("reproduce", help="reproduce the paper's figures and tables", allow_abbrev=False)
    parser.add_argument(
        "names",
        nargs="+",
        metavar="NAME",
        help="experiments such as fig9 or tab5, `all` of them, or another evaluation: fairness, frontier, "
        "splitting, allox, oef, mixed, estimates",
    )
    parser.add_argument("--scale", choices=tuple(_SEEDS), default="quick", help="default: %(default)s")
    parser.add_argument("--seeds", type=int, metavar="N", help="number of seeds (default: 3 at quick scale, else 5)")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="runs at a time; default: %(default)s")
    parser.add_argument("--out", default="out/reproduce", metavar="FOLDER", help="default: %(default)s")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_reproduce)


def _reproduce(options: argparse.Namespace) -> int:
    seeds = options.seeds if options.seeds is not None else _SEEDS[options.scale]
    for name, number in (("--seeds", seeds), ("--jobs", options.jobs)):
        if number < 1:
            raise InputError(f"{name} must be 1 or more", value=number)
    # Imported late, so that bad options are reported at once.
    from themis_lab.paper.registry import PAPERS

    papers = [name for name in options.names if name in PAPERS]
    if papers:
        return _reproduce_paper(papers[0], options, seeds)
    from themis_cli.reproduce_progress import ProgressLine
    from themis_lab.paper.output import overview_text, summary_markdown
    from themis_lab.paper.plans import distinct_runs
    from themis_lab.paper.port import Scale
    from themis_lab.paper.registry import APART
    from themis_lab.paper.result_files import make_folder, write_whole
    from themis_lab.paper.run_cache import RunCache
    from themis_lab.paper.runner import run_all

    experiments = _wanted(options.names)
    scale, folder = Scale(options.scale), Path(options.out)
    make_folder(folder)
    began_s = time.monotonic()
    done: list[_Done] = []
    runs = distinct_runs(experiments, scale, seeds)
    cache = RunCache(folder, [cell.key for cell in runs])
    before = [cell for cell in runs if cell.key in cache.found]
    try:
        with (
            ProgressLine(runs, before, scale, options.jobs) as line,
            closing(run_all(experiments, scale, seeds, options.jobs, line.update, cache)) as results,
        ):
            _evaluate(results, line, options, done)
        if _ALL in options.names or APART.keys() >= set(options.names):
            how = _how(options, len(runs), len(before), seeds, time.monotonic() - began_s)
            findings = [(experiment, findings) for experiment, findings, _ in done]
            if _ALL in options.names and not options.json:
                sys.stdout.write(overview_text(findings))
            write_whole(folder / "summary.md", summary_markdown(findings, how).encode())
        _print_document(done, scale, seeds, options)
        # Runs stay in the cache until all output is written.
        sys.stdout.flush()
    except BaseException as error:
        if isinstance(error, InputError):
            # Print the findings even if their files cannot be written.
            _print_document(done, scale, seeds, options)
        sys.stderr.write(cache.resume_hint())
        raise
    sys.stderr.write(cache.clear())
    return 0


def _reproduce_paper(name: str, options: argparse.Namespace, seeds: int) -> int:
    """Make all experiments of another evaluation, whose runs are short: in turn, and nothing is cached."""
    from themis_lab.paper.output import section, summary_markdown, write
    from themis_lab.paper.port import Scale
    from themis_lab.paper.registry import PAPERS
    from themis_lab.paper.result_files import make_folder, write_whole

    if len(options.names) > 1:
        raise InputError("such an evaluation is made alone", value=options.names, remedy=f"name only {name}")
    scale, folder = Scale(options.scale), Path(options.out)
    make_folder(folder)
    # CPU time, since all runs are made in this process: it is the same on a busy machine.
    began_s = time.process_time()
    done: list[_Done] = []
    for experiment in import_module(PAPERS[name]).EXPERIMENTS:
        sys.stderr.write(f"{experiment.name}: {experiment.title}\n")
        findings = experiment.run(scale, seeds)
        if not options.json:
            sys.stdout.write(section(experiment, findings).text() + "\n")
            sys.stdout.flush()
        done.append((experiment, findings, write(experiment, findings, folder)))
    cpu_s = time.process_time() - began_s
    how = (
        f"Made with `themis reproduce {name} --scale {scale.value} --seeds {seeds}` in {cpu_s:.0f} s of CPU time. "
        f"Numbers are medians over seeds 1 to {seeds}; "
        "comparisons and some figures also have the least and the largest."
    )
    write_whole(folder / "summary.md", summary_markdown([(made, found) for made, found, _ in done], how).encode())
    _print_document(done, scale, seeds, options)
    return 0


def _wanted(names: Sequence[str]) -> list[Experiment]:
    """The named experiments without duplicates. Names given together with `all` must be known too."""
    from themis_lab.paper.registry import MODULES, TOGETHER, experiment_named

    wanted = dict.fromkeys(each for name in names for each in (name, *TOGETHER.get(name, ())))
    named = [experiment_named(name) for name in wanted if name != _ALL]
    return [experiment_named(name) for name in MODULES] if _ALL in names else named


def _evaluate(results: _Results, line: ProgressLine, options: argparse.Namespace, done: list[_Done]) -> None:
    """Evaluate and write each experiment. Its table is printed as soon as it is ready."""
    from themis_lab.paper.output import section, write

    for experiment, runs in results:
        findings = experiment.evaluate(runs)
        done.append((experiment, findings, None))
        line.pause()
        if not options.json:
            sys.stdout.write(section(experiment, findings).text() + "\n")
            sys.stdout.flush()
        done[-1] = (experiment, findings, write(experiment, findings, Path(options.out)))


def _print_document(done: Sequence[_Done], scale: Scale, seeds: int, options: argparse.Namespace) -> None:
    from themis_lab.paper.output import document

    if options.json:
        documents = [document(experiment, findings, files) for experiment, findings, files in done]
        sys.stdout.write(json.dumps({"scale": scale.value, "seeds": seeds, "experiments": documents}) + "\n")


def _how(options: argparse.Namespace, runs: int, before: int, seeds: int, took_s: float) -> str:
    """How the numbers of the summary were made."""
    from themis_cli.reproduce_progress import length_text

    there = f" ({before} of them made before)" if before else ""
    return (
        f"Made with `themis reproduce {' '.join(options.names)} --scale {options.scale} --seeds {seeds}`: {runs} "
        f"runs{there}, {length_text(took_s)} with {options.jobs} at a time."
        + (
            f" Numbers are medians over seeds 1 to {seeds}; "
            "comparisons and some figures also have the least and the largest."
            if _ALL in options.names
            else ""
        )
    )
