"""Make the pictures of the pages in the documents: the cluster's page, an app's page, and the report of a small run.

    python tools/make_screenshots.py

It starts a ResourceManager on 8 emulated GPUs, submits replayed apps, and photographs its pages while they run, in
Chromium (Debian: `apt install chromium`). Then it runs the small testbed mix, and photographs the head of its report.
It takes three minutes. Run it on an idle machine, and look at the pictures before you commit them: what the apps have
done by then differs a little from run to run.
"""

from __future__ import annotations

import argparse
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from themis.errors import InputError

ROOT = Path(__file__).parents[1]
FIGURES = ROOT / "docs/figures"
SIZES = {"cluster-page.png": (1160, 1165), "app-page.png": (1160, 1270), "report.png": (1000, 665)}
"""The pictures, and the width of each page and how much of it they show, in pixels."""

SETTINGS = """\
cluster: small-8
state_dir: state
listen: 127.0.0.1:0
page: 127.0.0.1:0
time_scale: 5
lease: {duration_s: 10, checkpoint_lead_s: 1, grace_s: 5}
coalesce_s: 0.2
heartbeat_s: 0.5
"""
APPS = ("replay-search", "replay-resnet50", "replay-pair")
"""The examples that run. The first one's page is photographed."""

WATCHED_S = 25.0
"""How long the apps have run when their pages are photographed."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the pictures. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=FIGURES, metavar="FOLDER", help="default: docs/figures")
    parser.add_argument("--only", choices=SIZES, action="append", help="only this picture; repeatable")
    options = parser.parse_args(arguments)
    wanted = options.only or list(SIZES)
    with tempfile.TemporaryDirectory(prefix="themis-") as folder, browser() as page:
        if {"cluster-page.png", "app-page.png"} & set(wanted):
            with _resource_manager(Path(folder)) as url:
                for name, path in (("cluster-page.png", ""), ("app-page.png", "apps/app-0001")):
                    if name in wanted:
                        photograph(page, url + path, options.out / name)
        if "report.png" in wanted:
            out = Path(folder) / "testbed"
            subprocess.run([_command("themis"), "testbed", "run", "small", "--out", str(out)], check=True)
            photograph(page, (out / "report.html").as_uri(), options.out / "report.png")
    return 0


def photograph(page: Page, url: str, picture: Path) -> None:
    """Write the upper part of a page, with all of its charts drawn."""
    width, height = SIZES[picture.name]
    page.set_viewport_size({"width": width, "height": height})
    page.goto(url, wait_until="load")
    for place in page.query_selector_all("[data-chart]"):
        place.wait_for_selector("canvas, p:text-matches('.')")
    page.screenshot(path=picture)


@contextmanager
def browser() -> Iterator[Page]:
    """A page of Chromium, in its light colours."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        raise InputError("no Chromium on PATH", remedy="apt install chromium")
    with sync_playwright() as driver:
        chrome = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield chrome.new_page(color_scheme="light")
        chrome.close()


@contextmanager
def _resource_manager(folder: Path) -> Iterator[str]:
    """The address of the page of a ResourceManager whose apps have run for a while."""
    (folder / "rm.yaml").write_text(SETTINGS)
    log = folder / "rm.log"
    start = [_command("themis"), "rm", "start", "-c", "rm.yaml"]
    with log.open("wb") as output:
        manager = subprocess.Popen(start, cwd=folder, stdout=output, stderr=output)
    try:
        # Its page comes up last.
        while (url := re.search(r"http://127\.0\.0\.1:\d+/", log.read_text())) is None:
            if manager.poll() is not None:
                raise InputError("the ResourceManager did not start", value=log.read_text())
            time.sleep(0.1)
        address = (folder / "state/address").read_text().strip()
        for app in APPS:
            subprocess.run([_command("submarine"), "--rm", address, "app", "submit", app], check=True)
        time.sleep(WATCHED_S)
        yield url[0]
    finally:
        manager.send_signal(signal.SIGTERM)
        manager.wait(60)


def _command(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


if __name__ == "__main__":
    sys.exit(main())
