"""The pages in a real Chromium: charts are drawn, nothing overflows, and a renewal does not disturb the reader."""

import asyncio
import contextlib
import shutil

import pytest
from web_cases import busy, served

from themis.web import frame
from themis.wire import themis_pb2 as pb

playwright = pytest.importorskip("playwright.async_api", reason="playwright comes with the extra `dev`")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium (Debian: apt install chromium)")

CURVES = [
    pb.LossCurve(job_id="job-0", iterations=[1, 2, 3, 5], losses=[4.0, 2.0, 1.0, 0.5]),
    pb.LossCurve(job_id="job-1", iterations=[1, 4], losses=[4.0, 3.0]),
]


def send_curves(case, curves):
    entry = case.entries.get("app-0001")
    heartbeat = pb.Heartbeat()
    heartbeat.CopyFrom(entry.heartbeat)
    heartbeat.loss_curves.extend(curves)
    entry.take_heartbeat(heartbeat)


@contextlib.asynccontextmanager
async def opened(path, *, width=1200, scripts=True, case=None, curves=CURVES):
    """A page in a browser, and what the browser complained about."""
    case = case or busy()
    send_curves(case, curves)
    async with served(case) as site, playwright.async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = await browser.new_page(viewport={"width": width, "height": 800}, java_script_enabled=scripts)
        complaints = []
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("requestfailed", lambda request: complaints.append(request.url))
        await page.goto(site.url.rstrip("/") + path, wait_until="load")
        for place in await page.query_selector_all("[data-chart]") if scripts else ():
            await place.wait_for_selector("canvas, p:text-matches('.')")
        yield page, complaints
        await browser.close()


def run(scenario):
    asyncio.run(scenario())


@pytest.fixture(autouse=True)
def quick_renewal(monkeypatch):
    monkeypatch.setattr(frame.page, "__kwdefaults__", {**frame.page.__kwdefaults__, "refresh_s": 1})


@pytest.mark.parametrize("path", ["/", "/apps", "/apps/app-0001"])
@pytest.mark.parametrize("width", [1200, 400])
def test_page_fits_and_the_console_is_empty(path, width):
    async def scenario():
        async with opened(path, width=width) as (page, complaints):
            assert await page.evaluate("document.documentElement.scrollWidth") == width
            assert complaints == []

    run(scenario)


def test_losses_are_drawn_with_a_legend_of_jobs():
    async def scenario():
        async with opened("/apps/app-0001") as (page, _):
            legend = await page.inner_text("#chart-losses .u-legend")
            assert "job-0 (best)" in legend
            assert "job-1" in legend
            box = await page.locator("#chart-losses canvas").bounding_box()
            assert box["width"] > 800

    run(scenario)


def test_log_scale_is_a_toggle_and_a_hidden_curve_stays_hidden():
    async def scenario():
        async with opened("/apps/app-0001") as (page, complaints):
            await page.click("#chart-losses .u-series:has-text('job-1') .u-label")
            await page.click("text=Log scale")
            assert await page.get_attribute("text=Log scale", "aria-pressed") == "true"
            assert "u-off" in await page.get_attribute("#chart-losses .u-series:has-text('job-1')", "class")
            assert complaints == []

    run(scenario)


def test_losses_at_zero_have_no_log_scale():
    curves = [pb.LossCurve(job_id="job-0", iterations=[1, 2], losses=[1.0, 0.0])]

    async def scenario():
        async with opened("/apps/app-0001", curves=curves) as (page, _):
            await page.wait_for_selector("#chart-losses canvas")
            assert not await page.is_visible("text=Log scale")

    run(scenario)


def test_renewal_shows_news_and_keeps_chart_scroll_and_focus():
    case = busy()

    async def scenario():
        async with opened("/", case=case) as (page, complaints):
            await page.evaluate("document.querySelector('#chart-usage canvas').dataset.mine = 'kept'")
            await page.focus("a[href='apps/app-0001'] >> nth=-1")
            await page.evaluate("scrollTo(0, 300)")
            scrolled = await page.evaluate("scrollY")
            case.running("newcomer", rho=3.0)
            await page.wait_for_selector("text=newcomer")
            assert await page.evaluate("scrollY") == scrolled
            assert await page.evaluate("document.activeElement.getAttribute('href')") == "apps/app-0001"
            assert await page.evaluate("document.querySelector('#chart-usage canvas').dataset.mine") == "kept"
            assert complaints == []

    run(scenario)


def test_new_losses_appear_without_a_reload():
    case = busy()

    async def scenario():
        async with opened("/apps/app-0001", case=case) as (page, _):
            send_curves(case, [pb.LossCurve(job_id="job-2", iterations=[1, 4], losses=[4.0, 3.0])])
            await page.wait_for_selector("#chart-losses .u-series:has-text('job-2')")

    run(scenario)


def test_page_says_so_when_there_is_no_answer():
    async def scenario():
        async with opened("/") as (page, _):
            await page.route("**/*", lambda route: route.abort())
            await page.wait_for_selector("body.stale")

    run(scenario)


def test_without_scripts_the_numbers_are_linked():
    async def scenario():
        async with opened("/apps/app-0001", scripts=False) as (page, _):
            assert await page.is_visible("#chart-losses noscript a")

    run(scenario)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_a_contrast_of_4_5_to_1(scheme):
    async def scenario():
        async with opened("/apps/app-0001") as (page, _):
            await page.emulate_media(color_scheme=scheme)
            worst = await page.evaluate(CONTRAST)
            assert worst["ratio"] >= 4.5, worst

    run(scenario)


CONTRAST = """() => {
  const channels = (text) => text.match(/[0-9.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b]
    .map((v) => v / 255)
    .map((v) => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, at) => sum + v * [.2126, .7152, .0722][at], 0);
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const found = channels(getComputedStyle(node).backgroundColor);
      if (found.length < 4 || found[3] > 0) return found;
    }
    return [255, 255, 255];
  };
  let worst = { ratio: 21 };
  const walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || !node.checkVisibility() || node.closest("script, style")) continue;
    const [a, b] = [light(channels(getComputedStyle(node).color)), light(behind(node))].sort((x, y) => y - x);
    const ratio = (a + .05) / (b + .05);
    if (ratio < worst.ratio) worst = { ratio, text: walker.currentNode.textContent, tag: node.outerHTML.slice(0, 200) };
  }
  return worst;
}"""
