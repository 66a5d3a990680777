"""The pages in a real Chromium: charts are drawn, nothing overflows, and a renewal does not disturb the reader."""

import asyncio
import contextlib
import re
import shutil

import pytest
from web_cases import RmCase, busy, served

from am.page.server import AmPage
from am.page.state import AmPageState, JobRow
from rm_plugin.service.web import readers, stream
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
        # On a busy machine a page takes longer than the library's half minute.
        page.set_default_timeout(120_000)
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
    monkeypatch.setattr(stream, "STEP_S", 0.2)
    monkeypatch.setattr(stream, "IDLE_S", 1.0)
    monkeypatch.setattr(frame.page, "__kwdefaults__", {**frame.page.__kwdefaults__, "refresh_s": 1})


@pytest.fixture
def of_ada(monkeypatch):
    """The reader of the pages is the user of all apps."""
    monkeypatch.setattr(readers, "user_name", lambda uid: "ada")


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


CONTRAST_OF_LEGEND = """() => {
  const context = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const luminance = (colour) => {
    context.fillStyle = colour;
    context.fillRect(0, 0, 1, 1);
    const [r, g, b] = [...context.getImageData(0, 0, 1, 1).data].map((v) => v / 255)
      .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
  };
  const card = luminance(getComputedStyle(document.documentElement).getPropertyValue("--card").trim());
  return [...document.querySelectorAll("#chart-losses .u-series:not(:first-child) .u-marker")].map((mark) => {
    const line = luminance(/oklch\\([^)]*\\)/.exec(getComputedStyle(mark).backgroundImage)[0]);
    return Math.max(line, card) / Math.min(line, card);
  });
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_curves_of_all_hues_stand_out_from_the_page(scheme):
    curves = [pb.LossCurve(job_id=f"job-{at}", iterations=[1, 2, 3], losses=[3.0, 2.0, 1.0 + at]) for at in range(24)]

    async def scenario():
        async with opened("/apps/app-0001", curves=curves) as (page, _):
            await page.emulate_media(color_scheme=scheme)
            contrasts = await page.evaluate(CONTRAST_OF_LEGEND)
            assert len(contrasts) == 24
            assert min(contrasts) >= 3

    run(scenario)


def test_legend_shows_the_dashes_of_a_line_not_its_colour_alone():
    curves = [pb.LossCurve(job_id=f"job-{at}", iterations=[1, 2, 3], losses=[3.0, 2.0, 1.0 + at]) for at in range(4)]

    async def scenario():
        async with opened("/apps/app-0001", curves=curves) as (page, _):
            marks = page.locator("#chart-losses .u-series:not(:first-child) .u-marker")
            drawn = await marks.evaluate_all("marks => marks.map(mark => getComputedStyle(mark).backgroundImage)")
            dashes = {re.sub(r"oklch\([^)]*\)", "line", each) for each in drawn}
            assert len(dashes) == 4

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
            case.running("newcomer")
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
            # Without scripts the whole document is loaded again every few seconds.
            await page.wait_for_selector("#chart-losses noscript a", state="visible")

    run(scenario)


def test_page_is_renewed_by_the_stream_and_not_by_a_timer():
    case = busy()

    async def scenario():
        async with opened("/", case=case) as (page, _):
            asked = []
            page.on("request", lambda request: asked.append(request.url))
            case.running("newcomer")
            await page.wait_for_selector("text=newcomer")
            assert not [url for url in asked if "stream" in url]
            assert await page.evaluate("timer") == 0

    run(scenario)


def test_page_without_a_stream_asks_every_few_seconds(monkeypatch):
    monkeypatch.setattr(stream, "MAX_STREAMS", 0)
    case = busy()

    async def scenario():
        async with opened("/", case=case) as (page, _):
            case.running("newcomer")
            await page.wait_for_selector("text=newcomer")

    run(scenario)


def live_case():
    case = busy()
    case.manager.rounds.trigger = lambda why: None
    case.manager.rounds.lease_ends_moved = lambda: None
    return case


@pytest.mark.parametrize("width", [1200, 400])
def test_kill_asks_first_and_cancel_changes_nothing(of_ada, width):
    case = live_case()
    entry = case.entries.get("app-0001")

    async def scenario():
        async with opened("/apps/app-0001", case=case, width=width) as (page, complaints):
            await page.click("button:has-text('Kill')")
            assert await page.inner_text("dialog h2") == "Kill hungry (app-0001)?"
            assert await page.evaluate("document.activeElement.textContent") == "Cancel"
            await page.keyboard.press("Escape")
            assert not entry.kill_reason
            await page.focus("button:has-text('Kill')")
            await page.keyboard.press("Enter")
            await page.fill("dialog input", "wrong data")
            await page.keyboard.press("Enter")
            await page.wait_for_selector("#action-note:has-text('It ends')")
            assert entry.kill_reason == "wrong data"
            await page.wait_for_selector("button:has-text('Kill')", state="detached")
            assert complaints == []
        await case.manager.app_masters.close()

    run(scenario)


def test_pause_becomes_resume(of_ada):
    case = live_case()
    entry = case.entries.get("app-0001")

    async def scenario():
        async with opened("/apps/app-0001", case=case) as (page, _):
            await page.click("button:has-text('Pause')")
            await page.click("dialog button:has-text('Pause')")
            # No app master is connected, so it is paused at once.
            await page.wait_for_selector("button:has-text('Resume')")
            assert entry.state.value == "PAUSED"
            await page.click("button:has-text('Resume')")
            await page.click("dialog button:has-text('Resume')")
            await page.wait_for_selector("button:has-text('Pause')")
            assert entry.state.value == "ACCEPTED"
        await case.manager.app_masters.close()

    run(scenario)


def test_refused_change_says_why(of_ada):
    case = live_case()

    async def scenario():
        async with opened("/apps/app-0001", case=case) as (page, _):
            await page.click("button:has-text('Pause')")
            case.entries.get("app-0001").kill_reason = "meanwhile"
            await page.click("dialog button:has-text('Pause')")
            await page.wait_for_selector("#action-note.bad:has-text('cannot be paused')")

    run(scenario)


def test_reader_without_rights_has_no_buttons(monkeypatch):
    monkeypatch.setattr(readers, "user_name", lambda uid: "eve")

    async def scenario():
        async with opened("/apps/app-0001") as (page, complaints):
            assert await page.locator("button[data-verb]").count() == 0
            assert await page.locator(".logs").count() == 0
            assert complaints == []

    run(scenario)


def test_log_is_shown_and_followed(of_ada, tmp_path):
    case = busy()
    case.manager.settings = case.manager.settings.model_copy(update={"state_dir": tmp_path})
    folder = case.manager.folder("app-0001") / "jobs" / "job-0"
    folder.mkdir(parents=True)
    log = folder / "task-0.log"
    log.write_bytes(b"bar 1 %\rbar 100 %\n\x1b[31mloss\x1b[0m 0.5 <script>alert(7)</script>\n")

    async def scenario():
        async with opened("/apps/app-0001", case=case) as (page, complaints):
            await page.wait_for_selector(".logs pre:has-text('loss 0.5 <script>')")
            assert "bar 1 %" not in await page.inner_text(".logs pre")
            with log.open("ab") as file:
                file.write("gr\u00fc\u00dfe\n".encode())
            await page.wait_for_selector(".logs pre:has-text('gr\u00fc\u00dfe')")
            (folder / "task-1.log").write_text("the second task\n")
            await page.wait_for_selector("option:has-text('job-0/task-1.log')", state="attached")
            await page.select_option(".logs select", "job-0/task-1.log")
            await page.wait_for_selector(".logs pre:has-text('the second task')")
            assert complaints == []

    run(scenario)


def test_parameters_and_time_line_are_drawn_and_the_pointer_names_a_span(of_ada):
    case = busy()
    detail = {"job_id": "job-0", "gpus": ["m00/0", "m00/1"], "iteration": 0, "incarnation": 1}
    case.recorder.record("tasks_started", app_id="app-0001", detail=detail)
    case.clock.advance_to(case.clock.now_s() + 60.0)
    case.recorder.record("tasks_ended", app_id="app-0001", detail=detail)

    async def scenario():
        async with opened("/apps/app-0001", case=case) as (page, complaints):
            await page.hover("#chart-parameters .u-over")
            legend = await page.inner_text("#chart-parameters .u-legend")
            assert "job-0 (best)" in legend
            box = await page.locator("#chart-timeline .u-over").bounding_box()
            await page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 10)
            await page.wait_for_selector("#chart-timeline p:has-text('job-0 on 2 GPUs')")
            assert complaints == []

    run(scenario)


def test_time_line_says_how_many_rows_it_does_not_show():
    async def scenario():
        case = RmCase(((43,),))
        case.running("large")
        case.grant(app_0001={"m00": 43})
        async with opened("/apps/app-0001", case=case) as (page, complaints):
            assert await page.inner_text("#chart-timeline p") == "and 3 more GPUs"
            assert complaints == []

    run(scenario)


def test_apps_are_searched_and_sorted_by_key_and_a_renewal_keeps_both():
    case = busy()
    names = "[...document.querySelectorAll('#apps tbody tr:not([hidden])')].map((row) => row.cells[1].textContent)"

    async def scenario():
        async with opened("/", case=case) as (page, complaints):
            assert await page.evaluate(names) == ["content", "hungry", "done"]
            await page.focus("#apps th button:has-text('name')")
            await page.keyboard.press("Enter")
            assert await page.evaluate(names) == ["content", "done", "hungry"]
            assert await page.get_attribute("#apps th:has-text('name')", "aria-sort") == "ascending"
            await page.keyboard.press("Enter")
            assert await page.evaluate(names) == ["hungry", "done", "content"]
            await page.fill("#apps-search input", "ING N")
            assert await page.inner_text("#apps-search [role=status]") == "2 of 3 in this table"
            await page.focus("#apps th button:has-text('name')")
            case.running("newcomer")
            await page.wait_for_selector("#apps td:has-text('newcomer')")
            assert await page.evaluate(names) == ["newcomer", "hungry", "content"]
            assert await page.evaluate("document.activeElement.textContent") == "name"
            await page.keyboard.press("Enter")
            assert await page.evaluate(names) == ["newcomer", "content", "hungry"]
            await page.fill("#apps-search input", "nobody")
            assert await page.inner_text("#apps-search [role=status]") == "0 of 4 in this table"
            assert complaints == []  # The next page ends the stream of this one.
            await page.fill("#apps-search input", "newcomer waiting")
            await page.keyboard.press("Enter")
            await page.wait_for_url("**/apps?search=newcomer+waiting")
            assert await page.evaluate(names) == ["newcomer"]
            assert await page.input_value("#apps-search input") == "newcomer waiting"

    run(scenario)


def test_numbers_are_sorted_by_size_and_unknown_ones_come_last():
    case = busy()
    for progress in (0.05, 1.0):
        case.running(f"at {progress}", progress=progress)
    shown = "[...document.querySelectorAll('#apps tbody tr')].map((row) => row.cells[6].textContent)"

    async def scenario():
        async with opened("/apps", case=case) as (page, complaints):
            await page.click("#apps th button:has-text('progress')")
            assert (await page.evaluate(shown))[-4:] == ["5 %", "50 %", "50 %", "100 %"]
            await page.click("#apps th button:has-text('progress')")
            assert (await page.evaluate(shown))[:4] == ["100 %", "50 %", "50 %", "5 %"]
            assert complaints == []

    run(scenario)


def test_legend_is_used_by_key():
    async def scenario():
        async with opened("/apps/app-0001") as (page, _):
            head = page.locator("#chart-losses .u-series:has-text('job-1') th")
            await head.focus()
            await page.keyboard.press("Enter")
            assert await head.get_attribute("aria-pressed") == "false"
            assert "u-off" in await page.get_attribute("#chart-losses .u-series:has-text('job-1')", "class")

    run(scenario)


def colourful():
    """Twelve apps that hold a GPU each: the hues of their boxes lie all around the circle."""
    case = RmCase(((12,),))
    for _ in range(12):
        case.running("one")
    case.grant(**{entry.app_id.replace("-", "_"): {"m00": 1} for entry in case.entries})
    return case


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("path", "made"), [("/", colourful), ("/apps/app-0001", busy)])
def test_text_has_a_contrast_of_4_5_to_1(path, made, scheme):
    async def scenario():
        async with opened(path, case=made()) as (page, _):
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


def test_charts_have_no_white_on_dark_pages():
    async def scenario():
        async with opened("/apps/app-0001") as (page, _):
            await page.emulate_media(color_scheme="dark")
            await page.reload()
            await page.wait_for_selector("#chart-losses canvas")
            assert await page.evaluate(BRIGHTEST, "#chart-losses canvas") < 250

    run(scenario)


BRIGHTEST = """(canvas) => {
  const drawn = document.querySelector(canvas);
  const { data } = drawn.getContext("2d").getImageData(0, 0, drawn.width, drawn.height);
  let most = 0;
  for (let at = 0; at < data.length; at += 4) {
    if (data[at + 3] === 255) most = Math.max(most, Math.min(data[at], data[at + 1], data[at + 2]));
  }
  return most;
}"""


def test_events_have_more_room_than_their_times_on_a_narrow_screen(of_ada):
    async def scenario():
        async with opened("/apps/app-0001", width=400) as (page, _):
            heads = page.locator("table:has(th:text-is('what')) th")
            when, what = await heads.evaluate_all("heads => heads.map(head => head.offsetWidth)")
            assert when < what

    run(scenario)


@pytest.mark.parametrize(
    ("path", "table", "head"), [("/apps", "#apps", "why it waits"), ("/apps/app-0001", "", "hyper-parameters")]
)
def test_wide_tables_hide_no_column_on_a_narrow_screen(path, table, head):
    async def scenario():
        async with opened(path, width=400) as (page, _):
            cells = page.locator(f'{table}.stacked td[data-head="{head}"]:not(:empty)')
            assert await cells.count()
            # In one go: an update of the page may replace the cells.
            shown = "[cell.getBoundingClientRect().right, getComputedStyle(cell, '::before').content]"
            ends, heads = zip(*await cells.evaluate_all(f"cells => cells.map(cell => {shown})"), strict=True)
            assert max(ends) <= 400
            assert all(head in each for each in heads)

    run(scenario)


def test_legend_without_a_pointer_on_its_chart_has_no_colons():
    async def scenario():
        async with opened("/apps/app-0001") as (page, _):
            series = page.locator("#chart-losses .u-series", has_text="job-1")
            after = "series => getComputedStyle(series.querySelector('th'), '::after').content"
            assert await series.evaluate(after) == "none"
            await page.hover("#chart-losses .u-over")
            assert await series.evaluate(after) == '":"'

    run(scenario)


@pytest.mark.parametrize("width", [1200, 400])
def test_page_of_an_app_master_fits_and_the_console_is_empty(width, tmp_path):
    jobs = [
        JobRow(
            job_id=f"job-{n}",
            state="RUNNING",
            iteration=3,
            target_iteration=9,
            hyper_parameters={"lr": 0.1 / 3},
            tracked_run="https://tracker.example/team/a-project-with-a-long-name/runs/0123456789abcdef",
        )
        for n in range(8)
    ]
    shown = AmPageState(
        app_id="app-0001",
        name="a-search-with-a-rather-long-name",
        tuner="successive_halving",
        attempt=1,
        now_s=1000.0,
        progress=0.25,
        rho=1.5,
        phase=1,
        phases=2,
        best="job-0",
        jobs=tuple(jobs),
        leases=(),
        folder=tmp_path,
    )

    async def scenario():
        am_page, complaints = AmPage(lambda: shown), []
        url = await am_page.start("127.0.0.1")
        async with playwright.async_playwright() as driver:
            browser = await driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            page = await browser.new_page(viewport={"width": width, "height": 800})
            page.on("console", lambda message: complaints.append(message.text))
            page.on("pageerror", lambda error: complaints.append(str(error)))
            await page.goto(url, wait_until="load")
            assert await page.inner_text("h1")
            assert await page.evaluate("document.documentElement.scrollWidth") == width
            ends = "links => links.map(link => link.getBoundingClientRect().right)"
            assert max(await page.locator("td a").evaluate_all(ends)) <= width
            await browser.close()
        await am_page.stop()
        assert complaints == []

    run(scenario)
