// The charts of the last minutes: lines over time, and columns by batch size. Drawn as SVG, described in words.

import { count, draw, make, say } from "/pages/shoal.js";

const SPANS = [60, 150, 300]; // s; the shortest that shows everything
const HIGH = 144; // px, as the style sheet has it
const MARGIN = { left: 40, right: 6, top: 8, bottom: 18 };
const MOST_COLUMNS = 32;

/** A number that an axis likes, at or above this one. */
function round(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map((step) => step * power).find((step) => step >= value * 0.999);
}

function place(figure) {
  let svg = figure.querySelector("svg");
  if (!svg) figure.append((svg = draw("svg", { role: "img" })));
  const width = Math.max(200, svg.clientWidth || 300);
  svg.setAttribute("viewBox", `0 0 ${width} ${HIGH}`);
  return { svg, width };
}

function frame(width, top, format) {
  const inner = { left: MARGIN.left, right: width - MARGIN.right, top: MARGIN.top, bottom: HIGH - MARGIN.bottom };
  const y = (value) => inner.bottom - (Math.min(value, top) / top) * (inner.bottom - inner.top);
  const parts = [0, top / 2, top].flatMap((value) => [
    draw("line", { class: "grid", x1: inner.left, x2: inner.right, y1: y(value), y2: y(value) }),
    draw("text", { x: inner.left - 6, y: y(value) + 4, "text-anchor": "end" }, value ? format(value) : "0"),
  ]);
  return { inner, y, parts };
}

/** `series` is [{name, colour, value(cell)}]; a null is a gap. */
export function lines(figure, cells, series, { format, least = 0 }) {
  const { svg, width } = place(figure);
  const last = cells.at(-1);
  const high = Math.max(least, ...cells.flatMap((cell) => series.map(({ value }) => value(cell) ?? 0)));
  const { inner, y, parts } = frame(width, round(high), format);
  const now = last?.at ?? 0;
  const long = SPANS.find((span) => now - (cells[0]?.at ?? 0) <= span) ?? SPANS.at(-1);
  const x = (at) => inner.right - ((now - at) / long) * (inner.right - inner.left);
  for (const { colour, value } of series) {
    for (const run of runsOf(cells, value)) {
      const points = run.map(([at, number]) => `${x(at).toFixed(1)},${y(number).toFixed(1)}`);
      if (series.length === 1) {
        parts.push(draw("polygon", { class: "area", points: [`${x(run[0][0]).toFixed(1)},${inner.bottom}`, ...points, `${x(run.at(-1)[0]).toFixed(1)},${inner.bottom}`].join(" "), style: { "--stroke": `var(${colour})` } }));
      }
      parts.push(draw("polyline", { class: "curve", points: (points.length > 1 ? points : [...points, points[0]]).join(" "), style: { "--stroke": `var(${colour})` } }));
    }
  }
  for (const [back, anchor] of [[long, "start"], [long / 2, "middle"], [0, "end"]]) {
    const words = back ? `\u2212${long > 100 ? `${back / 60} min` : `${back} s`}` : "now";
    parts.push(draw("text", { x: x(now - back), y: HIGH - 3, "text-anchor": anchor }, words));
  }
  svg.replaceChildren(...parts);
  const latest = series.map(({ name, value }) => `${name ? `${name} ` : ""}${last && value(last) !== null ? format(value(last)) : "\u2013"}`);
  caption(figure, series, latest);
  svg.setAttribute("aria-label", `${figure.dataset.title}, the last minutes; latest: ${latest.join(", ")}`);
}

function runsOf(cells, value) {
  const runs = [];
  let run = [];
  for (const cell of cells) {
    const number = value(cell);
    if (number === null) {
      if (run.length) runs.push(run);
      run = [];
    } else run.push([cell.at, number]);
  }
  return run.length ? [...runs, run] : runs;
}

function caption(figure, series, latest) {
  const title = figure.querySelector("figcaption");
  figure.dataset.title ??= title.textContent;
  if (title.children.length !== 1) {
    title.append(make("span", {}, ...series.map(({ colour }) => make("i", { class: "swatch", style: { "--swatch": `var(${colour})`, "font-style": "normal" } }))));
  }
  [...title.querySelectorAll("i")].forEach((key, place) => say(key, latest[place]));
}

/** How many batches had so many rows; neighbours share a column where there would be too many. */
export function columns(figure, sizes) {
  const { svg, width } = place(figure);
  figure.dataset.title ??= figure.querySelector("figcaption").textContent;
  const entries = Object.entries(sizes).map(([rows, batches]) => [Number(rows), batches]);
  const largest = Math.max(1, ...entries.map(([rows]) => rows));
  const each = Math.ceil(largest / MOST_COLUMNS);
  const bins = Array.from({ length: Math.ceil(largest / each) }, () => 0);
  for (const [rows, batches] of entries) bins[Math.floor((rows - 1) / each)] += batches;
  const { inner, y, parts } = frame(width, round(Math.max(...bins)), count);
  const broad = (inner.right - inner.left) / Math.max(bins.length, 6);
  bins.forEach((batches, place) => {
    const left = inner.left + place * broad;
    const [first, last] = [place * each + 1, Math.min((place + 1) * each, largest)];
    const name = first === last ? String(first) : `${first}\u2013${last}`;
    if (batches) parts.push(draw("rect", { class: "column", x: left + 1, width: Math.max(1, broad - 2), y: y(batches), height: Math.max(1, inner.bottom - y(batches)), rx: 2 }, draw("title", {}, `${name} rows: ${count(batches)} batches`)));
    if (broad > 22 || place % Math.ceil(26 / broad) === 0) parts.push(draw("text", { x: left + broad / 2, y: HIGH - 3, "text-anchor": "middle" }, String(first)));
  });
  svg.replaceChildren(...parts);
  const all = entries.reduce((sum, [, batches]) => sum + batches, 0);
  svg.setAttribute("aria-label", `${figure.dataset.title}: ${entries.map(([rows, batches]) => `${rows} rows ${batches} times`).slice(0, 20).join(", ") || "none yet"}; ${count(all)} in all`);
}
