// The timeline: batches per instance as they form and run, each coloured by why it left, each request's wait before it.

import { count, hue, milliseconds, several, why } from "/pages/shoal.js";

const BEHIND = 0.4; // s that the picture is behind the server, so that what it shows has been told
const KEPT = 6000;
const LONGEST = 61; // s
const LANE = { label: 15, waits: 22, block: 24, row: 16, gap: 8 };
const AXIS = 22;
const QUEUE = 40;
const MOST_WAITING = 64; // whose arrivals the server tells

export class Timeline {
  constructor(canvas, facts) {
    this.canvas = canvas;
    this.facts = facts;
    this.span = 2;
    this.pausedAt = null;
    this.chosen = null;
    this.calm = matchMedia("(prefers-reduced-motion: reduce)");
    this.forget();
    this.colours = new Map();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.colours.clear());
    canvas.addEventListener("pointermove", (event) => this.point(event));
    canvas.addEventListener("pointerdown", (event) => this.point(event));
    canvas.addEventListener("pointerleave", () => { if (this.pausedAt === null) this.choose(null); });
    canvas.addEventListener("keydown", (event) => this.step(event));
    this.drawn = 0;
    const turn = () => {
      const due = this.calm.matches ? 1000 : 0;
      if (performance.now() - this.drawn >= due) this.draw();
      requestAnimationFrame(turn);
    };
    requestAnimationFrame(turn);
  }

  /** Another model: nothing of the last one is kept. */
  forget() {
    this.ended = [];
    this.held = [];
    this.arrived = [];
    this.waiting = 0;
    this.instances = [];
    this.heard = 0;
    this.missed = 0;
    this.skew = null;
    this.rows = new Map(); // of each batch, the row of its lane
    this.taken = new Map(); // of each lane, who has each row and until when
    this.choose(null);
  }

  colour(name) {
    if (!this.colours.has(name)) this.colours.set(name, getComputedStyle(document.documentElement).getPropertyValue(name).trim());
    return this.colours.get(name);
  }

  hear({ now, ended, missed, held, waiting, arrived }) {
    const skew = now - performance.now() / 1000;
    this.skew = this.skew === null ? skew : Math.max(this.skew - 0.001, skew);
    for (const [number, instance, reason, left, end, rows, requests, failed, waits] of ended) {
      this.ended.push({ number, instance, reason, left, end, rows, requests, failed, waits });
    }
    this.heard += ended.length;
    this.missed += missed;
    this.held = held.map(([number, instance, reason, left, rows, requests, waits]) => ({ number, instance, reason, left, end: null, rows, requests, failed: 0, waits }));
    this.waiting = waiting;
    this.arrived = arrived;
    this.place(now);
    const oldest = now - LONGEST;
    if (this.pausedAt === null && (this.ended.length > KEPT || this.ended[0]?.end < oldest)) {
      this.ended = this.ended.filter((batch) => batch.end >= oldest).slice(-KEPT);
      const known = new Set([...this.ended, ...this.held].map((batch) => batch.number));
      for (const number of this.rows.keys()) if (!known.has(number)) this.rows.delete(number);
    }
    if (this.pausedAt !== null) this.ended.splice(2 * KEPT); // whoever pauses for long sees no more of what comes
    this.canvas.dataset.heard = this.heard;
  }

  /** Gives every batch a row of its lane: one that is sent while another runs has the next. */
  place(now) {
    const held = new Set(this.held.map((batch) => batch.number));
    for (const rows of this.taken.values()) {
      for (const row of rows) if (row.end === Infinity && !held.has(row.number)) row.end = now;
    }
    for (const batch of [...this.ended, ...this.held].sort((one, other) => one.left - other.left)) {
      const rows = this.taken.get(batch.instance) ?? this.taken.set(batch.instance, []).get(batch.instance);
      const known = this.rows.get(batch.number);
      if (known !== undefined) {
        if (rows[known]?.number === batch.number) rows[known].end = batch.end ?? Infinity;
        continue;
      }
      let row = rows.findIndex(({ end }) => end <= batch.left);
      if (row < 0) row = rows.length;
      rows[row] = { number: batch.number, end: batch.end ?? Infinity };
      this.rows.set(batch.number, row);
    }
  }

  /** The time at the right edge. */
  edge() {
    return this.pausedAt ?? performance.now() / 1000 + (this.skew ?? 0) - BEHIND;
  }

  pause(isPaused) {
    this.pausedAt = isPaused ? this.edge() : null;
    if (!isPaused) this.choose(null);
  }

  lanes(from) {
    const shown = [...this.ended.filter((batch) => batch.end >= from), ...this.held];
    const most = new Map(this.instances.map((name) => [name, 1]));
    for (const { instance, number } of shown) most.set(instance, Math.max(most.get(instance) ?? 1, 1 + this.rows.get(number)));
    let top = QUEUE;
    const lanes = new Map();
    for (const [name, rows] of most) {
      const block = rows === 1 ? LANE.block : LANE.row;
      lanes.set(name, { top, rows, block });
      top += LANE.label + LANE.waits + rows * (block + 1) + LANE.gap;
    }
    return { shown, lanes, bottom: Math.max(top, QUEUE + 50) };
  }

  draw() {
    this.drawn = performance.now();
    const { canvas } = this;
    const width = canvas.clientWidth;
    if (!width || canvas.closest("[hidden]")) return;
    const edge = this.edge();
    const from = edge - this.span;
    const { shown, lanes, bottom } = this.lanes(from);
    const height = bottom + AXIS;
    const ratio = devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      canvas.style.setProperty("height", `${height}px`);
    }
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    const x = (time) => ((time - from) / this.span) * width;
    this.drawAxis(pen, width, height);
    this.drawQueue(pen, width, x, edge);
    this.spots = [];
    for (const { top, rows, block } of lanes.values()) {
      pen.fillStyle = this.colour("--card");
      pen.fillRect(0, top + LANE.label + LANE.waits, width, rows * (block + 1) - 1);
    }
    for (const batch of shown) this.drawBatch(pen, batch, lanes.get(batch.instance), x, width);
    pen.textAlign = "left";
    for (const [name, { top }] of lanes) this.words(pen, name, 6, top + 8, "--soft");
    if (!lanes.size) this.words(pen, "No instance is up", 6, QUEUE + 20, "--soft");
    canvas.dataset.shown = this.spots.length;
    canvas.dataset.lanes = lanes.size;
  }

  words(pen, text, left, top, colour) {
    pen.fillStyle = this.colour(colour);
    pen.fillText(text, left, top);
  }

  drawAxis(pen, width, height) {
    const step = { 0.5: 0.1, 2: 0.5, 5: 1, 20: 5, 60: 10 }[this.span];
    pen.textAlign = "center";
    const each = Math.ceil((64 * this.span) / (step * width)); // a label has so much room, or every second one
    for (let line = 0; line * step <= this.span + 1e-9; line += 1) {
      const back = line * step;
      const left = width * (1 - back / this.span);
      pen.fillStyle = this.colour("--line");
      pen.fillRect(Math.round(left), QUEUE, 1, height - QUEUE - AXIS);
      if (line % each) continue;
      const text = back === 0 ? (this.pausedAt === null ? "now" : "paused") : `\u2212${Number(back.toFixed(1))} s`;
      const half = pen.measureText(text).width / 2 + 4;
      this.words(pen, text, Math.min(Math.max(left, half), width - half), height - AXIS / 2, "--soft");
    }
  }

  /** When those had arrived who wait at the time of the right edge: some of them have left since. */
  waitingAt(edge) {
    const gone = [...this.ended.slice(-KEPT / 10), ...this.held].filter((batch) => batch.left > edge)
      .flatMap((batch) => batch.waits.map((wait) => batch.left - wait / 1000));
    return [...gone, ...this.arrived].filter((time) => time <= edge).sort((one, other) => one - other);
  }

  /** Those who still wait: a line for each, from its arrival to now. */
  drawQueue(pen, width, x, edge) {
    pen.textAlign = "left";
    const still = this.waitingAt(edge);
    const many = Math.max(still.length, this.arrived.length >= MOST_WAITING && this.pausedAt === null ? this.waiting : 0);
    const queue = many ? `Queue: ${several(many, "request")} waiting` : "Queue: nobody waits";
    const missed = this.missed ? ` \u00b7 ${several(this.missed, "batch", "batches")} not drawn, there were too many` : "";
    this.words(pen, queue + missed, 6, 9, "--soft");
    pen.fillStyle = this.colour("--why-other");
    const room = QUEUE - 20;
    const thick = Math.max(1, Math.min(3, room / Math.max(1, still.length) - 0.5));
    still.forEach((time, place) => {
      const left = Math.max(0, x(time));
      pen.fillRect(left, 17 + (place * room) / Math.max(still.length, 5), Math.max(1.5, width - left), thick);
    });
  }

  drawBatch(pen, batch, { top, block }, x, width) {
    const left = x(batch.left);
    const right = batch.end === null ? Math.max(width, left + 1) : x(batch.end);
    if (right < 0 || left > width) return;
    const colour = this.colour(hue(batch.reason));
    const waitsTop = top + LANE.label;
    const blockTop = waitsTop + LANE.waits + this.rows.get(batch.number) * (block + 1);
    pen.fillStyle = colour;
    const room = LANE.waits - 2;
    const thick = Math.max(0.75, Math.min(2.5, room / Math.max(1, batch.waits.length) - 0.75));
    pen.globalAlpha = 0.75;
    batch.waits.forEach((wait, place) => {
      const begin = x(batch.left - wait / 1000);
      pen.fillRect(begin, waitsTop + (place * room) / Math.max(batch.waits.length, 5), Math.max(1.5, left - begin), thick);
    });
    pen.globalAlpha = 1;
    const broad = Math.max(2, right - left - 1);
    pen.beginPath();
    pen.roundRect(left, blockTop, broad, block, Math.min(4, broad / 2));
    pen.fill();
    if (batch.failed) {
      pen.strokeStyle = this.colour("--bad");
      pen.lineWidth = 2.5;
      pen.stroke();
    }
    const label = batch.failed ? `${batch.rows}!` : String(batch.rows);
    const seen = Math.max(left, 0);
    if (Math.min(right, width) - seen > pen.measureText(label).width + 6) {
      pen.textAlign = "center";
      this.words(pen, label, (seen + Math.min(right, width)) / 2, blockTop + block / 2 + 0.5, "--card");
    }
    if (this.chosen?.number === batch.number) {
      pen.strokeStyle = this.colour("--ink");
      pen.lineWidth = 2;
      pen.strokeRect(left - 1, blockTop - 1, broad + 2, block + 2);
    }
    this.spots.push({ batch, left, right: left + broad, top: this.rows.get(batch.number) ? blockTop : waitsTop, bottom: blockTop + block });
  }

  point(event) {
    const box = this.canvas.getBoundingClientRect();
    const [across, down] = [event.clientX - box.left, event.clientY - box.top];
    let best = null;
    let least = 12;
    for (const spot of this.spots ?? []) {
      if (down < spot.top || down > spot.bottom) continue;
      const away = across < spot.left ? spot.left - across : Math.max(0, across - spot.right);
      if (away < least) [best, least] = [spot.batch, away];
    }
    if (best || this.pausedAt === null) this.choose(best);
  }

  /** Arrow keys go from batch to batch, once it is paused. */
  step(event) {
    const move = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity }[event.key];
    if (move === undefined) return;
    event.preventDefault();
    if (this.pausedAt === null) this.onpause?.();
    const order = (this.spots ?? []).map((spot) => spot.batch).sort((a, b) => a.left - b.left);
    if (!order.length) return;
    const at = order.findIndex((batch) => batch.number === this.chosen?.number);
    const next = at < 0 ? order.length - 1 : Math.min(order.length - 1, Math.max(0, at + move));
    this.choose(order[next]);
  }

  choose(batch) {
    if (batch?.number === this.chosen?.number) return;
    this.chosen = batch;
    if (!this.facts) return;
    this.facts.textContent = batch ? describe(batch) : "Point at a batch, or pause and use the arrow keys.";
  }
}

export function describe(batch) {
  const { number, instance, rows, requests, reason, waits, left, end, failed } = batch;
  const longest = Math.max(...waits);
  const shortest = Math.min(...waits);
  const span = waits.length > 1 && longest - shortest >= 0.1 ? `${milliseconds(shortest)} to ${milliseconds(longest)}` : milliseconds(longest);
  const size = rows === requests ? several(rows, "row") : `${several(rows, "row")} of ${several(requests, "request")}`;
  const run = end === null ? "runs" : `ran ${milliseconds(1000 * (end - left))}`;
  return `Batch ${number}: ${size}, left because ${why(reason)}; waited ${span}, ${run} on ${instance}${failed ? `; ${count(failed)} failed` : ""}`;
}
