// Draws the charts of a page and keeps them up to date. A chart is an element with `data-chart` (its kind) and `data-source`
// (the address of its data). It has an id and `data-keep`, so that the page's own renewal leaves it alone.
"use strict";

const GOLDEN_ANGLE = 137.508; // Neighbours in the list have very different hues.
const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3]];
const HEIGHT = 260;
const MAX_ROWS = 40;

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

function written(value) {
  return typeof value === "number" ? shown(value) : String(value ?? "");
}

function moment(time_s) {
  return time_s == null ? "" : new Date(1000 * time_s).toISOString().slice(0, 19) + "Z";
}

function clock(time_s) {
  return moment(time_s).slice(11, 19);
}

function cut(text, pixels) {
  const letters = Math.max(3, Math.floor(pixels / 7));
  return text.length > letters ? text.slice(0, letters - 1) + "\u2026" : text;
}

// A job's line, told from others by colour and dashes, the same in all charts of a page. The best one is thick.
function jobSeries(job, at, best) {
  const index = Number(/\d{1,9}$/.exec(job.job_id)?.[0] ?? at);
  return {
    label: job.job_id + (job.job_id === best ? " (best)" : ""),
    width: job.job_id === best ? 2.5 : 1.3,
    stroke: `oklch(${colour("--curve")} 0.15 ${(250 + index * GOLDEN_ANGLE) % 360})`,
    dash: DASHES[index % DASHES.length],
    spanGaps: true,
  };
}

// A piece of a line, with its dashes, as the background of its mark in the legend.
function lineSample({ stroke, dash }) {
  if (!stroke) return "none";
  let at = 0;
  const parts = (dash?.length ? dash : [1]).map((length, index) => `${index % 2 ? "transparent" : stroke} ${at}px ${(at += length)}px`);
  return `repeating-linear-gradient(90deg, ${parts})`;
}

// Where values lie on an axis of parallel coordinates: words one above the other, numbers by size, or by logarithm if
// they are positive and span more than two orders of magnitude.
function axisScale(values) {
  if (!values.every((value) => typeof value === "number")) {
    const words = [...new Set(values.map(String))].sort();
    const place = (value) => (words.length < 2 ? 0.5 : words.indexOf(String(value)) / (words.length - 1));
    return { place, ends: [words[0], words.at(-1)] };
  }
  const least = Math.min(...values), most = Math.max(...values);
  const by = least > 0 && most / least > 100 ? Math.log : (value) => value;
  const place = (value) => (least === most ? 0.5 : (by(value) - by(least)) / (by(most) - by(least)));
  return { place, ends: values.length ? [shown(least), shown(most)] : ["", ""] };
}

function paintAxes(u, scales) {
  const { ctx } = u, ratio = devicePixelRatio;
  ctx.save();
  ctx.strokeStyle = ctx.fillStyle = colour("--dim");
  ctx.font = `${11 * ratio}px system-ui`;
  ctx.textAlign = "center";
  ctx.lineWidth = ratio;
  const room = u.bbox.width / scales.length / ratio;
  scales.forEach((scale, at) => {
    const x = u.valToPos(at, "x", true), [low, high] = [0, 1].map((end) => u.valToPos(end, "y", true));
    ctx.beginPath();
    ctx.moveTo(x, low);
    ctx.lineTo(x, high);
    ctx.stroke();
    ctx.textBaseline = "top";
    ctx.fillText(cut(scale.ends[0], room), x, low + 6 * ratio);
    ctx.textBaseline = "bottom";
    if (scale.ends[1] !== scale.ends[0]) ctx.fillText(cut(scale.ends[1], room), x, high - 6 * ratio);
  });
  ctx.restore();
}

// The rows of a time line, jobs, then GPUs, each with its spans; and in words what there is beyond them.
function rowsOf(data) {
  const all = (spans, key, kind) => {
    const found = new Map();
    for (const span of spans) {
      if (!found.has(span[key])) found.set(span[key], { name: span[key], kind, spans: [] });
      found.get(span[key]).spans.push(span);
    }
    return [...found.values()].sort((a, b) => a.name.localeCompare(b.name, undefined, { numeric: true }));
  };
  const jobs = all(data.jobs, "job_id", "job"), gpus = all(data.leases, "gpu", "gpu");
  const more = Object.entries({ job: jobs.length, GPU: gpus.length })
    .map(([noun, count]) => [noun, count - MAX_ROWS])
    .filter(([_, beyond]) => beyond > 0)
    .map(([noun, beyond]) => `${beyond} more ${noun}${beyond === 1 ? "" : "s"}`);
  return { rows: [...jobs.slice(0, MAX_ROWS), ...gpus.slice(0, MAX_ROWS)], more: more.length ? `and ${more.join(" and ")}` : "" };
}

function paintSpans(u, rows, data) {
  const { ctx } = u, { left, top, width, height } = u.bbox, high = 12 * devicePixelRatio;
  const x = (time_s) => u.valToPos(time_s, "x", true);
  ctx.save();
  ctx.beginPath();
  ctx.rect(left, top, width, height);
  ctx.clip();
  ctx.fillStyle = colour("--free");
  for (const pause of data.pauses) ctx.fillRect(x(pause.from_s), top, x(pause.to_s ?? data.now_s) - x(pause.from_s), height);
  rows.forEach((row, at) => {
    const y = u.valToPos(at, "y", true);
    ctx.fillStyle = colour(row.kind === "job" ? "--accent" : "--dim");
    for (const span of row.spans) {
      const from = x(span.from_s), to = x(span.to_s ?? data.now_s);
      ctx.fillRect(from, y - high / 2, Math.max(devicePixelRatio, to - from - devicePixelRatio), high);
    }
  });
  ctx.restore();
}

// What the pointer is on, in words.
function spanAt(u, rows, now_s) {
  const row = rows[Math.round(u.posToVal(u.cursor.top, "y"))], time_s = u.posToVal(u.cursor.left, "x");
  const span = row?.spans.find((each) => each.from_s <= time_s && time_s <= (each.to_s ?? now_s));
  if (!span) return "";
  const gpus = row.kind === "job" ? ` on ${span.gpus} GPU${span.gpus === 1 ? "" : "s"}` : " leased";
  const seconds = Math.round((span.to_s ?? now_s) - span.from_s);
  return `${row.name}${gpus}, ${clock(span.from_s)} to ${span.to_s == null ? "now" : clock(span.to_s)}, ${seconds} s`;
}

// For each kind: how its document becomes series and columns of numbers, and its axes. Optional: `first`, the legend of
// x; `ranges` of x and y; `isDownward`, whether y is; `height`; `paint`, what is drawn over the series; `at`, what the
// pointer is on, and `idle`, what stands there while it is on nothing.
const KINDS = {
  losses(data) {
    const jobs = data.jobs.toSorted((a, b) => a.job_id.localeCompare(b.job_id, undefined, { numeric: true }));
    const tables = jobs.map((job) => [job.iterations, job.losses]);
    return {
      columns: jobs.length ? uPlot.join(tables) : [[]],
      series: jobs.map((job, index) => ({
        ...jobSeries(job, index, data.best_job),
        points: { show: job.iterations.length < 3 },
        value: (_, value) => shown(value),
      })),
      time: false,
      axes: [axis("iteration"), axis(data.metric, { size: 62 })],
      canLog: jobs.every((job) => job.losses.every((loss) => loss > 0)),
      empty: "No values yet.",
    };
  },
  // Parallel coordinates: x is the index of an axis, y the place on it from 0 to 1.
  parameters(data) {
    const jobs = data.jobs.filter((job) => Object.keys(job.hyper_parameters).length);
    const names = [...new Set(jobs.flatMap((job) => Object.keys(job.hyper_parameters))), data.metric?.name ?? "loss"];
    const raw = (job, at) => (at < names.length - 1 ? (job.hyper_parameters[names[at]] ?? null) : job.loss);
    const scales = names.map((_, at) => axisScale(jobs.map((job) => raw(job, at)).filter((value) => value != null)));
    const places = (job) => scales.map((scale, at) => (raw(job, at) == null ? null : scale.place(raw(job, at))));
    const ticks = { splits: () => names.map((_, at) => at), values: (u) => names.map((name) => cut(name, u.width / names.length)) };
    return {
      columns: jobs.length ? [names.map((_, at) => at), ...jobs.map(places)] : [[]],
      series: jobs.map((job, index) => ({
        ...jobSeries(job, index, data.best_job),
        value: (_u, _value, _series, at) => (at == null ? "" : written(raw(job, at))),
      })),
      time: false,
      first: { label: "axis", value: (_, at) => (at == null ? "" : names[at]) },
      axes: [axis("", { ...ticks, gap: 14, size: 40, grid: { show: false } }), { show: false }],
      ranges: { x: [-0.4, names.length - 0.6], y: [-0.06, 1.16] },
      paint: (u) => paintAxes(u, scales),
      canLog: false,
      empty: "No job has reported yet.",
    };
  },
  // Rows of jobs and GPUs over time: uPlot draws the axes, `paintSpans` the spans.
  timeline(data) {
    const { rows, more } = rowsOf(data);
    const times = [...data.jobs, ...data.leases, ...data.pauses].flatMap((span) => [span.from_s, span.to_s ?? data.now_s]);
    const names = { splits: () => rows.map((_, at) => at), values: () => rows.map((row) => cut(row.name, 84)) };
    return {
      columns: rows.length ? [[Math.min(...times), Math.max(...times)], [null, null]] : [[]],
      series: [{ label: "row", value: (u) => rows[Math.round(u.posToVal(u.cursor.top, "y"))]?.name ?? "" }],
      time: true,
      first: { label: "time", value: (u) => (u.cursor.left >= 0 ? moment(u.posToVal(u.cursor.left, "x")) : "") },
      axes: [axis("time (UTC)", { values: (_, splits) => splits.map(clock), space: 76 }), axis("", { ...names, size: 92, grid: { show: false } })],
      ranges: { y: [-0.6, rows.length - 0.4] },
      isDownward: true,
      height: 90 + 18 * rows.length,
      paint: (u) => paintSpans(u, rows, data),
      at: (u) => spanAt(u, rows, data.now_s),
      idle: more,
      canLog: false,
      empty: "Nothing ran yet.",
    };
  },
  usage(data) {
    const noun = data.device_noun, { time_s } = data;
    return {
      columns: [data.time_s, data.leased, data.available, data.max_rho],
      series: [
        { label: `${noun}s leased`, stroke: colour("--accent"), width: 2, fill: colour("--free"), value: (_, v) => shown(v) },
        { label: `${noun}s available`, stroke: colour("--dim"), width: 1, dash: [4, 4], value: (_, v) => shown(v) },
        { label: "max rho", stroke: colour("--bad"), width: 2, dash: [8, 4], scale: "rho", spanGaps: false, value: (_, v) => shown(v) },
      ],
      // One sample alone would have an axis of years.
      ranges: { x: time_s.length === 1 && [time_s[0] - 60, time_s[0] + 60], y: [0, 1.1 * Math.max(1, ...data.available)] },
      time: true,
      axes: [axis("time (UTC)", { values: (_, splits) => splits.map(clock), space: 76 }), axis(`${noun}s`, { scale: "y", size: 50 }), axis("max rho", { scale: "rho", side: 1, size: 50, grid: { show: false } })],
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
    this.isZoomed = false;
    this.height = HEIGHT;
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
    return { width: Math.max(200, this.place.clientWidth), height: this.height };
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
    const isEmpty = !kind.columns[0].length;
    this.button.hidden = !kind.canLog || isEmpty;
    const log = this.log && kind.canLog;
    // What is painted over the series belongs to one document.
    if (this.plot && this.labels === labels && this.drawnLog === log && !kind.paint) {
      this.plot.setData(kind.columns);
      return;
    }
    // The line for what the pointer is on is there before, so that nothing moves.
    this.note.textContent = isEmpty ? kind.empty : kind.at ? kind.idle || "\u00a0" : "";
    const { min, max } = this.plot?.scales.x ?? {};
    this.plot?.series.forEach((each) => (each.show ? this.hidden.delete(each.label) : this.hidden.add(each.label)));
    const focused = [...this.figure.querySelectorAll("th")].indexOf(document.activeElement);
    this.plot?.destroy();
    this.plot = null;
    this.labels = labels;
    this.drawnLog = log;
    if (isEmpty) return;
    this.height = kind.height ?? HEIGHT;
    this.plot = new uPlot({ ...this.size(), ...this.options(kind, log) }, kind.columns, this.figure);
    this.plot.over.addEventListener("dblclick", () => { this.isZoomed = false; });
    if (this.isZoomed && min != null) this.plot.setScale("x", { min, max });
    this.makeLegendUsableByKey();
    if (focused >= 0) this.figure.querySelectorAll("th")[focused]?.focus({ preventScroll: true });
  }

  options(kind, log) {
    const plain = kind.time ? { label: "time", value: (_, value) => moment(value) } : { label: "iteration", value: (_, value) => shown(value) };
    const { x, y } = kind.ranges ?? {};
    const say = (u) => { this.note.textContent = (u.cursor.left >= 0 && kind.at(u)) || kind.idle || "\u00a0"; };
    return {
      scales: {
        x: { time: kind.time, ...(x && { range: (_, low, high) => (this.isZoomed ? [low, high] : x) }) },
        y: { ...(log && { distr: 3 }), ...(y && { range: () => y }), ...(kind.isDownward && { dir: -1 }) },
      },
      series: [kind.first ?? plain, ...kind.series.map((each) => this.series(each))],
      axes: kind.axes,
      legend: { markers: { width: 0, fill: (_, at) => lineSample(kind.series[at - 1]) } },
      cursor: { focus: { prox: 20 } },
      focus: { alpha: 0.35 },
      hooks: {
        draw: kind.paint ? [kind.paint] : [],
        setCursor: kind.at ? [say] : [],
        setSelect: [(u) => { this.isZoomed = u.select.width > 0; }],
      },
    };
  }

  // The library fills points with white, which glares on dark pages.
  series(each) {
    return { ...each, show: !this.hidden.has(each.label), points: { fill: colour("--card"), ...each.points } };
  }

  // A click in the legend hides and shows a line; with this a key does too.
  makeLegendUsableByKey() {
    this.figure.querySelectorAll(".u-series:not(:first-child) th").forEach((head, index) => {
      const at = index + 1, isShown = () => String(this.plot.series[at].show);
      head.tabIndex = 0;
      head.setAttribute("role", "button");
      head.setAttribute("aria-pressed", isShown());
      head.onfocus = () => this.plot.setSeries(at, { focus: true });
      head.onblur = () => this.plot?.setSeries(null, { focus: true });
      head.addEventListener("click", () => head.setAttribute("aria-pressed", isShown()));
      head.onkeydown = (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        head.click();
      };
    });
  }
}

const charts = new Map();

function renewCharts() {
  for (const place of document.querySelectorAll("[data-chart]")) {
    if (charts.has(place)) charts.get(place).renew();
    else charts.set(place, new Chart(place));
  }
}

renewCharts();
document.addEventListener("themis:renewed", renewCharts);
