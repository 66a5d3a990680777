// Draws the charts of a page and keeps them up to date. A chart is an element with `data-chart` (its kind) and `data-source`
// (the address of its data). It has an id and `data-keep`, so that the page's own renewal leaves it alone.
"use strict";

const GOLDEN_ANGLE = 137.508; // Neighbours in the list have very different hues.
const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3]];
const HEIGHT = 260;

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function axis(label, more) {
  const line = { stroke: colour("--line"), width: 1 };
  return { label, stroke: colour("--dim"), grid: line, ticks: line, font: "12px system-ui", labelFont: "12px system-ui", ...more };
}

function shown(value) {
  return value == null ? "" : String(Number(value.toPrecision(4)));
}

function moment(time_s) {
  return time_s == null ? "" : new Date(1000 * time_s).toISOString().slice(0, 19) + "Z";
}

// For each kind: how its document becomes series and columns of numbers, and its axes.
const KINDS = {
  losses(data) {
    const jobs = data.jobs;
    const tables = jobs.map((job) => [job.iterations, job.losses]);
    return {
      columns: jobs.length ? uPlot.join(tables) : [[]],
      series: jobs.map((job, index) => ({
        label: job.job_id + (job.job_id === data.best_job ? " (best)" : ""),
        width: job.job_id === data.best_job ? 2.5 : 1.3,
        stroke: `hsl(${(210 + index * GOLDEN_ANGLE) % 360} 60% 50%)`,
        dash: DASHES[index % DASHES.length],
        spanGaps: true,
        points: { show: job.iterations.length < 3 },
        value: (_, value) => shown(value),
      })),
      time: false,
      axes: [axis("iteration"), axis("loss", { size: 62 })],
      canLog: jobs.every((job) => job.losses.every((loss) => loss > 0)),
      empty: "No losses yet.",
    };
  },
  usage(data) {
    const noun = data.device_noun;
    return {
      columns: [data.time_s, data.leased, data.available, data.max_rho],
      series: [
        { label: `${noun}s leased`, stroke: colour("--accent"), width: 2, fill: colour("--free"), value: (_, v) => shown(v) },
        { label: `${noun}s available`, stroke: colour("--dim"), width: 1, dash: [4, 4], value: (_, v) => shown(v) },
        { label: "max rho", stroke: colour("--bad"), width: 2, dash: [8, 4], scale: "rho", spanGaps: false, value: (_, v) => shown(v) },
      ],
      time: true,
      axes: [axis("time (UTC)", { values: (_, splits) => splits.map((at) => moment(at).slice(11, 19)) }), axis(`${noun}s`, { scale: "y", size: 50 }), axis("max rho", { scale: "rho", side: 1, size: 50, grid: { show: false } })],
      canLog: false,
      empty: "Nothing was recorded yet.",
    };
  },
};

class Chart {
  constructor(place) {
    this.place = place;
    this.plot = null;
    this.log = false;
    this.hidden = new Set();
    place.replaceChildren();
    this.note = place.appendChild(document.createElement("p"));
    this.figure = place.appendChild(document.createElement("div"));
    this.button = document.createElement("button");
    this.button.type = "button";
    this.button.textContent = "Log scale";
    this.button.setAttribute("aria-pressed", "false");
    this.button.hidden = true;
    this.button.onclick = () => {
      this.log = !this.log;
      this.button.setAttribute("aria-pressed", String(this.log));
      this.draw();
    };
    place.append(this.button);
    new ResizeObserver(() => this.plot?.setSize(this.size())).observe(place);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    this.renew();
  }

  size() {
    return { width: Math.max(200, this.place.clientWidth), height: HEIGHT };
  }

  async renew() {
    let data;
    try {
      const answer = await fetch(this.place.dataset.source);
      if (!answer.ok) return;
      data = await answer.json();
    } catch {
      return; // The page says that there is no answer.
    }
    const text = JSON.stringify(data);
    if (text === this.text) return;
    this.text = text;
    this.data = data;
    this.draw();
  }

  draw() {
    if (!this.data) return;
    const kind = KINDS[this.place.dataset.chart](this.data);
    const labels = kind.series.map((each) => each.label).join();
    this.note.textContent = kind.columns[0].length ? "" : kind.empty;
    this.button.hidden = !kind.canLog || !kind.columns[0].length;
    const log = this.log && kind.canLog;
    if (this.plot && this.labels === labels && this.drawnLog === log) {
      this.plot.setData(kind.columns);
      return;
    }
    this.plot?.series.forEach((each) => (each.show ? this.hidden.delete(each.label) : this.hidden.add(each.label)));
    this.plot?.destroy();
    this.plot = null;
    this.labels = labels;
    this.drawnLog = log;
    if (!kind.columns[0].length) return;
    const series = kind.series.map((each) => ({ ...each, show: !this.hidden.has(each.label) }));
    const first = kind.time ? { label: "time", value: (_, value) => moment(value) } : { label: "iteration", value: (_, value) => shown(value) };
    const scales = { x: { time: kind.time }, y: log ? { distr: 3 } : {} };
    this.plot = new uPlot(
      { ...this.size(), scales, series: [first, ...series], axes: kind.axes, cursor: { focus: { prox: 20 } }, focus: { alpha: 0.35 } },
      kind.columns,
      this.figure,
    );
  }
}

const charts = [...document.querySelectorAll("[data-chart]")].map((place) => new Chart(place));
const every = Number(document.documentElement.dataset.refresh);
if (every) {
  setInterval(() => {
    if (!document.hidden) charts.forEach((chart) => chart.renew());
  }, 1000 * every);
}
