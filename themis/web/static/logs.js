// The logs of an app: one is shown, from its last part on, and followed while the box is ticked.
"use strict";

const TAIL_BYTES = 64 * 1024;
const PART_BYTES = 512 * 1024;
const SHOWN_LETTERS = 400000;
const FOLLOW_MS = 1000;
const COLOURS = /\x1b\[[0-9;?]*[A-Za-z]/g;
const OVERWRITTEN = /[^\n]*\r(?!\n)/g; // Bars write over their own line.

class Logs {
  constructor(place) {
    this.source = place.dataset.source;
    this.choice = place.querySelector("select");
    this.follow = place.querySelector("input");
    this.text = place.querySelector("pre");
    this.note = place.querySelector("p");
    this.whole = place.querySelector("a");
    this.choice.onchange = () => this.open();
    this.follow.onchange = () => this.read();
    document.addEventListener("themis:renewed", () => this.list());
    setInterval(() => this.follow.checked && !document.hidden && this.read(), FOLLOW_MS);
    this.list();
  }

  async list() {
    let paths;
    try {
      const answer = await fetch(this.source);
      if (!answer.ok) return;
      paths = (await answer.json()).logs;
    } catch {
      return;
    }
    const known = [...this.choice.options].map((option) => option.value);
    for (const path of paths) if (!known.includes(path)) this.choice.add(new Option(path, path));
    this.note.textContent = paths.length ? "" : "No logs yet.";
    if (!this.path && paths.length) this.open();
  }

  open() {
    this.path = this.choice.value;
    this.decoder = new TextDecoder();
    this.offset = -TAIL_BYTES;
    this.raw = "";
    this.text.textContent = "";
    this.whole.href = this.address(0, 1024 * 1024);
    this.read();
  }

  address(offset, limit) {
    const path = this.path.split("/").map(encodeURIComponent).join("/");
    return `${this.source}/${path}?offset=${offset}&limit=${limit}`;
  }

  async read() {
    if (!this.path || this.reading) return;
    this.reading = true;
    const path = this.path;
    try {
      const answer = await fetch(this.address(this.offset, PART_BYTES));
      const bytes = await answer.arrayBuffer();
      if (answer.ok && path === this.path) {
        this.offset = Number(answer.headers.get("X-Next-Offset"));
        if (bytes.byteLength) this.add(this.decoder.decode(bytes, { stream: true }));
      }
    } catch {
      // The page says that there is no answer.
    }
    this.reading = false;
    if (path !== this.path) this.read();
  }

  add(text) {
    // A reader who scrolled up, or selects text, is not disturbed.
    const atEnd = this.text.scrollHeight - this.text.scrollTop - this.text.clientHeight < 24;
    this.raw = (this.raw + text).slice(-SHOWN_LETTERS);
    if (String(getSelection())) return;
    this.text.textContent = this.raw.replace(COLOURS, "").replace(OVERWRITTEN, "");
    if (atEnd) this.text.scrollTop = this.text.scrollHeight;
  }
}

document.querySelectorAll(".logs").forEach((place) => new Logs(place));
