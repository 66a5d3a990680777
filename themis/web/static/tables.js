// Sorts the tables with `data-sort` by a click or a key on a head, and searches those with a place for it (`data-search`, the id of
// the table). Both outlast the page's own renewal, which replaces the table.
"use strict";

const orders = new Map(); // By table: the head it is sorted by, and 1 or -1.
const givenRows = new WeakMap(); // The rows in the order in which they came.

function valueOf(row, at) {
  const cell = row.cells[at], text = cell.textContent.trim();
  const value = cell.querySelector("[data-value]")?.dataset.value ?? text.replaceAll(",", "");
  const isUnknown = value === "" || value === "-";
  return { text: text.toLowerCase(), number: isUnknown ? NaN : Number(value), isUnknown };
}

// Unknown values come last in both directions.
function compare(a, b, direction) {
  if (a.isUnknown !== b.isUnknown) return a.isUnknown ? 1 : -1;
  if (!Number.isNaN(a.number) && !Number.isNaN(b.number)) return direction * (a.number - b.number);
  return direction * a.text.localeCompare(b.text, undefined, { numeric: true });
}

function arrange(place) {
  const body = place.querySelector("tbody"), order = orders.get(place.id);
  const heads = [...place.querySelectorAll("th")];
  const at = heads.findIndex((head) => head.textContent === order?.name);
  heads.forEach((head, index) => {
    if (index === at) head.setAttribute("aria-sort", order.direction > 0 ? "ascending" : "descending");
    else head.removeAttribute("aria-sort");
  });
  const rows = [...givenRows.get(place)];
  if (at >= 0) {
    const values = new Map(rows.map((row) => [row, valueOf(row, at)]));
    rows.sort((a, b) => compare(values.get(a), values.get(b), order.direction));
  }
  const focused = body.contains(document.activeElement) ? document.activeElement : null;
  body.append(...rows);
  focused?.focus({ preventScroll: true });
  search(place, rows);
}

function search(place, rows) {
  const tools = document.querySelector(`[data-search="${place.id}"]`);
  if (!tools) return;
  const words = tools.querySelector("input").value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const row of rows) row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word));
  const found = rows.filter((row) => !row.hidden).length;
  tools.querySelector("[role=status]").textContent = words.length ? `${found} of ${rows.length} in this table` : "";
}

// A first click sorts upwards, a second one downwards, a third one as it came.
function sortBy(place, name) {
  const order = orders.get(place.id);
  if (order?.name !== name) orders.set(place.id, { name, direction: 1 });
  else if (order.direction > 0) order.direction = -1;
  else orders.delete(place.id);
  arrange(place);
}

function makeHeadsButtons(place) {
  for (const head of place.querySelectorAll("th")) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    button.onclick = () => sortBy(place, button.textContent);
    head.replaceChildren(button);
  }
}

function makeSearch(tools) {
  tools.querySelector("input").oninput = () => {
    const place = document.getElementById(tools.dataset.search);
    if (place) search(place, givenRows.get(place));
  };
}

let focusedHead = null;

document.addEventListener("themis:renewing", () => {
  const head = document.activeElement.closest("[data-sort] th");
  focusedHead = head && { id: head.closest("[data-sort]").id, name: head.textContent };
});

function takeTables() {
  for (const tools of document.querySelectorAll("[data-search]")) makeSearch(tools);
  for (const place of document.querySelectorAll("[data-sort]")) {
    if (givenRows.has(place)) continue;
    givenRows.set(place, [...place.querySelectorAll("tbody tr")]);
    makeHeadsButtons(place);
    arrange(place);
    if (focusedHead?.id !== place.id) continue;
    const heads = [...place.querySelectorAll("th button")];
    heads.find((head) => head.textContent === focusedHead.name)?.focus({ preventScroll: true });
  }
}

takeTables();
document.addEventListener("themis:renewed", takeTables);
