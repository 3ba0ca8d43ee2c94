// The demo page: sends pictures to a model and shows what came back, how long it took and in which company.

import { count, hue, make, milliseconds, several, why } from "/pages/shoal.js";

const AT_ONCE = 6; // as many connections as a browser opens to one server
const COPIES = { bees: 200, ocr: 50 };
const KEPT_CARDS = 24;
const STAGES = ["queue", "preprocess", "inference", "postprocess"];

const results = document.getElementById("results");
const fileInput = document.getElementById("file");
const template = document.getElementById("card");

// ---- asking -------------------------------------------------------------------------------------------------------

function chosenModel() {
  return document.querySelector("input[name=model]:checked").value;
}

/** One request: the answer or the error, the milliseconds it took, and what the server said about its trip. */
async function ask(model, picture) {
  const began = performance.now();
  let response, body;
  try {
    response = await fetch(`/predictions/${model}`, {
      method: "POST",
      headers: { "Content-Type": picture.type || "application/octet-stream" },
      body: picture,
    });
    body = await response.text();
  } catch {
    return { error: { title: "No answer", message: "The server could not be reached. Is it still running?" }, began, took: performance.now() - began };
  }
  const took = performance.now() - began;
  const trip = readServerTiming(response.headers.get("Server-Timing") ?? "");
  let value;
  try {
    value = JSON.parse(body);
  } catch {
    const message = body.slice(0, 300) || "The answer was empty.";
    return { error: { title: `Status ${response.status}`, message }, began, took, trip };
  }
  if (!response.ok) {
    const title = { 400: "The model cannot use this", 404: "No such model", 413: "Too large", 503: "Busy just now" }[response.status];
    return { error: { title: title ?? value.type ?? "It failed", message: value.message ?? body }, began, took, trip };
  }
  return { value, began, took, trip };
}

/** `queue;dur=0.31, inference;dur=8, batch;desc="4 full"` as {queue: 0.31, inference: 8, batch: {rows: 4, why: "full"}}. */
function readServerTiming(header) {
  const trip = { note: header.replace(/^queue;[^,]*,\s*/, "") };
  for (const [, name, parameters] of header.matchAll(/([\w-]+)((?:\s*;\s*\w+=(?:"[^"]*"|[^,;]*))*)/g)) {
    const duration = /dur=([\d.]+)/.exec(parameters);
    const description = /desc="?([^",]*)"?/.exec(parameters);
    if (duration) trip[name] = Number(duration[1]);
    else if (description) {
      const [rows, ...why] = description[1].split(" ");
      trip[name] = { rows: Number(rows), why: why.join(" ") };
    }
  }
  return trip;
}

/** Runs `work` on every item, a few at a time, and says on which lane each one ran. */
async function inLanes(items, work) {
  const waiting = [...items];
  const lane = async (_, number) => {
    while (waiting.length) await work(waiting.shift(), number);
  };
  await Promise.all(Array.from({ length: Math.min(AT_ONCE, items.length) }, lane));
}

// ---- showing ------------------------------------------------------------------------------------------------------

/** A part of one as a CSS length. */
const share = (part) => `${Math.max(part * 100, 0)}%`;
/** More digits towards the ends, where they tell something: 38 %, 98.8 %, 99.99 %. */
function percent(part) {
  const margin = Math.min(part, 1 - part);
  return `${(part * 100).toFixed(margin >= 0.1 ? 0 : margin >= 0.002 || margin === 0 ? 1 : 2)} %`;
}

function newCard(picture, name) {
  const card = template.content.firstElementChild.cloneNode(true);
  const image = card.querySelector("img");
  image.alt = name;
  image.onerror = () => card.querySelector(".frame").classList.add("is-broken");
  image.src = URL.createObjectURL(picture);
  card.querySelector("figcaption").textContent = name;
  results.prepend(card);
  while (results.children.length > KEPT_CARDS) {
    URL.revokeObjectURL(results.lastElementChild.querySelector("img").src);
    results.lastElementChild.remove();
  }
  return card;
}

async function show(picture, name, model) {
  const card = newCard(picture, name);
  card.classList.toggle("is-wide", model === "ocr");
  const outcome = await ask(model, picture);
  const answer = card.querySelector(".answer");
  if (outcome.error) answer.replaceChildren(errorView(outcome.error));
  else if (model === "ocr") answer.replaceChildren(...textViews(outcome.value, card));
  else answer.replaceChildren(...labelViews(outcome.value));
  if (outcome.trip) answer.append(tripView(outcome));
  if (!outcome.error) answer.append(...copiesView(picture, model));
  card.setAttribute("aria-busy", "false");
}

function errorView({ title, message }) {
  return make("div", { class: "error", role: "alert" }, make("h3", {}, title), make("p", {}, message));
}

function labelViews(value) {
  const bars = value.top.map(({ label, probability }) =>
    make("li", {},
      make("b", { title: label }, label),
      make("div", { class: "bar" }, make("span", { style: { width: share(probability) } })),
      make("em", {}, percent(probability))));
  const certainty = value.probability < 0.3 ? "a guess; nothing it knows fits well" : value.probability < 0.6 ? "not sure" : "sure of it";
  return [
    make("div", { class: "label" }, make("h3", {}, value.label), make("span", {}, `${percent(value.probability)}, ${certainty}`)),
    make("ol", { class: "bars", "aria-label": "The five likeliest of 1000 classes" }, ...bars),
    versusView(value),
  ];
}

function versusView({ bees_or_ants: { bee, ant }, is_insect: isInsect }) {
  const verdict = isInsect
    ? "Bee or ant: these two classes compared with each other, the other 998 left out."
    : "Probably neither. This compares only bee with ant, so it always picks one; here, do not believe it.";
  return make("div", { class: isInsect ? "versus" : "versus is-doubtful" },
    make("div", {}, make("span", {}, `Bee ${percent(bee)}`), make("span", {}, `${percent(ant)} Ant`)),
    make("div", { class: "scale", "aria-hidden": "true" },
      make("span", { class: "bee", style: { "flex-grow": bee } }), make("span", { class: "ant", style: { "flex-grow": ant } })),
    make("p", {}, verdict));
}

function textViews(value, card) {
  if (!value.lines.length) return [make("div", { class: "label" }, make("h3", {}, "No text found"))];
  drawBoxes(value.lines, card);
  const mean = value.lines.reduce((sum, line) => sum + line.confidence, 0) / value.lines.length;
  const count = value.lines.length === 1 ? "1 line" : `${value.lines.length} lines`;
  return [
    make("div", { class: "label" }, make("h3", {}, count), make("span", {}, `${percent(mean)} confident`)),
    make("pre", { class: "text", tabindex: "0" }, value.text),
  ];
}

async function drawBoxes(lines, card) {
  const image = card.querySelector("img");
  await image.decode().catch(() => {});
  if (!image.naturalWidth) return;
  for (const { text, box: [left, top, right, bottom] } of lines) {
    card.querySelector(".frame").append(make("i", {
      title: text,
      style: {
        left: share(left / image.naturalWidth),
        top: share(top / image.naturalHeight),
        width: share((right - left) / image.naturalWidth),
        height: share((bottom - top) / image.naturalHeight),
      },
    }));
  }
}

/** How it was batched, in a sentence's end. */
function company(batch) {
  if (!batch?.rows) return "";
  const because = batch.why ? `, which left because ${why(batch.why)}` : "";
  return batch.rows === 1 ? `, alone in its batch${because}` : `, in a batch of ${batch.rows}${because}`;
}

function tripView({ took, trip }) {
  const known = STAGES.filter((stage) => stage in trip);
  const rest = Math.max(took - known.reduce((sum, stage) => sum + trip[stage], 0), 0);
  const parts = [...known.map((stage) => [stage, trip[stage]]), ["network", rest]];
  const summary = make("p", {}, "There and back in ", make("strong", {}, milliseconds(took)), company(trip.batch));
  if (!known.length) return make("div", { class: "trip" }, summary);
  return make("div", { class: "trip" },
    summary,
    make("div", { class: "stages", "aria-hidden": "true" },
      ...parts.map(([stage, duration]) => make("span", { class: stage, style: { "flex-grow": duration / took } }))),
    make("div", { class: "key" },
      ...parts.map(([stage, duration]) => make("span", { class: stage }, `${stage === "network" ? "network and browser" : stage} ${milliseconds(duration)}`))));
}

// ---- many copies --------------------------------------------------------------------------------------------------

function copiesView(picture, model) {
  const place = make("div", { class: "shoal" });
  const copies = COPIES[model];
  const words = `Send ${copies} copies`;
  const button = make("button", { type: "button", class: "button" }, words);
  let flock = null;
  button.addEventListener("click", async () => {
    if (flock) {
      flock.isOver = true;
      return;
    }
    flock = new Flock(place, copies);
    button.textContent = "Stop";
    await inLanes(Array.from({ length: copies }), async () => {
      if (!flock.isOver) flock.add(await ask(model, picture));
    });
    flock.end();
    flock = null;
    button.textContent = words;
  });
  return [make("div", { class: "actions" }, button), place];
}

/** Copies on their way, and the picture of the batches they come back in: a column each, a square for each request. */
class Flock {
  constructor(place, copies) {
    this.began = performance.now();
    this.copies = copies;
    this.took = [];
    this.failures = [];
    this.batches = new Map(); // the last one of each note
    this.columns = 0;
    this.left = new Map(); // batches by why they left
    this.isOver = false;
    this.story = make("p", { role: "status" });
    this.picture = make("ol", { class: "batches" });
    this.reasons = make("ul", { class: "reasons" });
    const words = `A column is a batch, a square one of its requests; hollow ones were somebody else's. A browser opens ${AT_ONCE} connections to a server, so at most ${AT_ONCE} of these copies wait at a time.`;
    place.replaceChildren(this.story, this.picture, this.reasons, make("p", {}, words));
    this.tell();
  }

  add({ error, trip, took }) {
    if (error) this.failures.push(error.message);
    else this.took.push(took);
    if (!error && trip?.batch) this.place(trip);
    this.tell();
  }

  /** What the server says of a batch is the same, to the microsecond, for everyone who rode in it; a full one is over. */
  place({ batch, note }) {
    let seen = this.batches.get(note);
    if (!seen || seen.mine >= seen.squares.length) {
      const squares = Array.from({ length: batch.rows }, () => make("i", { class: "is-others" }));
      const column = make("li", { title: `${several(batch.rows, "request")}; it left because ${why(batch.why)}`, style: { "--swatch": `var(${hue(batch.why)})` } }, ...squares);
      seen = { squares, mine: 0 };
      this.batches.set(note, seen);
      this.columns += 1;
      this.left.set(batch.why, (this.left.get(batch.why) ?? 0) + 1);
      this.picture.append(column);
    }
    seen.squares[seen.mine].removeAttribute("class");
    seen.mine += 1;
  }

  tell() {
    const [done, batches] = [this.took.length, this.columns];
    const so = batches ? ` in ${several(batches, "batch", "batches")}, ${(done / batches).toFixed(1)} to a batch` : "";
    const bad = this.failures.length ? `; ${count(this.failures.length)} failed: ${this.failures[0]}` : "";
    const open = done + this.failures.length < this.copies && !this.isOver ? `, ${this.copies - done - this.failures.length} to go` : "";
    this.story.replaceChildren(make("strong", {}, `${several(done, "answer")}${so}${open}${bad}`));
    this.reasons.replaceChildren(...[...this.left].map(([reason, number]) => make("li", { style: { "--swatch": `var(${hue(reason)})` } }, `${several(number, "batch", "batches")} left because ${why(reason)}`)));
  }

  end() {
    this.isOver = true;
    this.tell();
    const all = performance.now() - this.began;
    const median = this.took.sort((one, other) => one - other)[Math.floor(this.took.length / 2)];
    if (median !== undefined) this.story.append(`. ${milliseconds(all)} in all, ${count((1000 * this.took.length) / all)} a second; the median copy took ${milliseconds(median)}.`);
  }
}

// ---- ways in ------------------------------------------------------------------------------------------------------

function take(files) {
  const model = chosenModel();
  inLanes([...files], (file) => show(file, file.name || "pasted picture", model));
}

for (const input of [fileInput, document.getElementById("camera")]) {
  input.addEventListener("change", () => {
    take(input.files);
    input.value = "";
  });
}
document.getElementById("photo").hidden = !matchMedia("(pointer: coarse)").matches;

document.addEventListener("paste", (event) => take(event.clipboardData.files));

document.addEventListener("dragover", (event) => {
  event.preventDefault();
  document.body.classList.add("is-over");
});
document.addEventListener("dragleave", (event) => {
  if (!event.relatedTarget) document.body.classList.remove("is-over");
});
document.addEventListener("drop", (event) => {
  event.preventDefault();
  document.body.classList.remove("is-over");
  take(event.dataTransfer.files);
});

for (const button of document.querySelectorAll("[data-sample]")) {
  button.addEventListener("click", async () => {
    const { sample, model } = button.dataset;
    document.querySelector(`input[name=model][value=${model}]`).checked = true;
    const picture = await (await fetch(`/pages/samples/${sample}`)).blob();
    show(picture, button.querySelector("img").alt, model);
  });
}

document.getElementById("curl").textContent = `curl -X POST ${location.origin}/predictions/bees -T picture.jpg`;

const dashboard = document.querySelector("meta[name=dashboard]").content;
if (dashboard && location.hostname === new URL(dashboard).hostname) {
  document.querySelector("#dashboard a").href = dashboard;
  document.getElementById("dashboard").hidden = false;
}
