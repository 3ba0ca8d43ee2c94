// The dashboard: hears the server's events and shows them; asks for what somebody wants done.

import { columns, lines } from "/pages/dashboard-charts.js";
import { Stream } from "/pages/dashboard-stream.js";
import { Timeline, describe } from "/pages/dashboard-timeline.js";
import { count, hue, make, milliseconds, say, several, why } from "/pages/shoal.js";

const CELLS = 300;
const CELL = ["at", "seconds", "arrived", "answered", "failed", "waiting", "batches", "rows", "busy", "p50", "p95", "p99"];
const FEW = 8; // models that need no search
const LAST = 20; // batches in the table

const at = (id) => document.getElementById(id);
const percent = (part) => `${Math.round(100 * part)} %`;
const timeline = new Timeline(at("timeline"), at("facts"));
let models = [];
let shown = null; // the model that is looked at, as the server last told
let cells = [];
let isOpen = false;
let hasKey = false;

const stream = new Stream({
  live() {
    link("live", "Live");
    at("locked").hidden = true;
    timeline.forget();
    cells = [];
    shown = null;
    isOpen = true;
    enable();
  },
  gone(pause, reason) {
    link("gone", reason ? `Stopped: ${reason}` : `No answer from the server; next try in ${pause} s`);
    isOpen = false;
    enable();
  },
  locked(status, message) {
    link("locked", status === 401 ? "Locked" : "Refused");
    isOpen = false;
    at("locked").hidden = false;
    at("model").hidden = at("nothing").hidden = true;
    models = [];
    listModels();
    enable();
    const isWrong = status === 403 || hasKey;
    at("key-fault").hidden = !isWrong;
    at("key-fault").textContent = status === 403 ? message : "That key is wrong, or its time is over.";
    at("unlock").querySelector(".row").hidden = status === 403;
    at("key").focus();
  },
  hello({ can_load: canLoad, compat, version }) {
    at("load").hidden = at("unload").hidden = !canLoad;
    if (compat === "triton") {
      at("load-what").textContent = "Name of a model in the model repository";
      for (const label of document.querySelectorAll("[data-store]")) label.hidden = true;
    }
    document.querySelector("header img").title = `Shoal ${version}`;
  },
  models(told) {
    models = told.models;
    listModels();
    at("nothing").hidden = models.length > 0;
    if (!models.length) at("model").hidden = true;
  },
  model(told) {
    const isOther = shown?.name !== told.name || shown?.version !== told.version;
    if (isOther) {
      timeline.forget();
      cells = [];
      at("said").textContent = "";
      at("workers").value = told.min_workers;
      history.replaceState(null, "", `#${encodeURIComponent(told.name)}/${encodeURIComponent(told.version)}`);
    }
    if (document.activeElement !== at("workers") && shown?.min_workers !== told.min_workers) at("workers").value = told.min_workers;
    cells = [...cells, ...told.cells.map((row) => Object.fromEntries(CELL.map((name, place) => [name, row[place]])))].slice(-CELLS);
    shown = told;
    timeline.instances = told.instances;
    at("model").hidden = false;
    showModel();
    if (isOther) {
      listModels();
      reveal(at("models").querySelector("[aria-current=true]"));
    }
  },
  batches(told) {
    timeline.hear(told);
    say(at("tile-waiting"), count(told.waiting));
  },
  bye({ reason }) {
    stream.reason = reason;
  },
});

function link(state, words) {
  at("link").dataset.state = state;
  say(at("link"), words);
}

// ---- models ---------------------------------------------------------------------------------------------------------

const isShown = (model) => model.name === shown?.name && model.version === shown?.version;

function listModels() {
  say(at("model-count"), models.length || "");
  at("find-label").hidden = models.length <= FEW;
  const wanted = at("find").value.trim().toLowerCase();
  const list = models.filter((model) => !wanted || model.name.toLowerCase().includes(wanted));
  const rows = at("models");
  while (rows.children.length > list.length) rows.lastElementChild.remove();
  list.forEach((model, place) => {
    const row = rows.children[place] ?? rows.appendChild(newRow());
    const button = row.firstElementChild;
    const [name, state, numbers] = button.children;
    Object.assign(button.dataset, { name: model.name, version: model.version });
    button.setAttribute("aria-current", isShown(model));
    say(name.firstChild, model.name);
    say(name.lastElementChild, ` ${model.version}${model.is_default ? "" : ", not default"}`);
    state.dataset.state = model.state === "ready" && model.trouble ? "failed" : model.state;
    say(state, model.trouble && model.state === "ready" ? "trouble" : model.state);
    const facts = [`${count(model.rate)}/s`, `${count(model.waiting)} waiting`, `${model.ready}/${model.wanted} workers`, milliseconds(model.p99)];
    facts.forEach((fact, index) => say(numbers.children[index], fact));
    numbers.lastElementChild.title = "99 of 100 within";
  });
}

/** Scrolls the list, and nothing else, so that a row of it is seen. */
function reveal(button) {
  const list = at("models");
  if (!button) return;
  const [row, box] = [button.getBoundingClientRect(), list.getBoundingClientRect()];
  if (row.top < box.top || row.bottom > box.bottom) list.scrollTop += row.top - box.top - (box.height - row.height) / 2;
}

function newRow() {
  const button = make("button", { type: "button", onclick: () => stream.open(button.dataset.name, button.dataset.version) },
    make("b", {}, document.createTextNode(""), make("small", {})), make("span", { class: "pill" }),
    make("span", { class: "numbers" }, ...Array.from({ length: 4 }, () => make("span", {}))));
  return make("li", {}, button);
}

at("find").addEventListener("input", listModels);

// ---- one model ------------------------------------------------------------------------------------------------------

function showModel() {
  const line = models.find(isShown) ?? {};
  const { name, version, state, error, traceback, policy, limit, url, totals, reasons, sizes, workers } = shown;
  if (at("name").textContent !== `${name} ${version}`) at("name").replaceChildren(name, make("small", {}, ` ${version}`));
  document.title = `${name} \u00b7 Shoal dashboard`;
  at("state").dataset.state = state;
  say(at("state"), state);
  const rule = { adaptive: "batches form by themselves", fixed: "fixed batch size and delay", preferred: "Triton's dynamic batching", single: "one request at a time", continuous: "continuous batching" }[policy] ?? policy;
  say(at("rule"), `${rule}, up to ${several(limit, "row")}${url ? ` \u00b7 ${url.split("/").pop()}` : ""}`);
  at("rule").title = url;
  fault(at("trouble"), error, traceback);
  enable();
  at("default").hidden = line.is_default !== false;
  say(at("tile-rate"), count(line.rate ?? 0));
  say(at("tile-p50"), milliseconds(line.p50));
  say(at("tile-p99"), milliseconds(line.p99));
  say(at("tile-rows"), line.rows ? line.rows.toFixed(1) : "\u2013");
  say(at("tile-busy"), percent(line.busy ?? 0));
  lines(at("chart-rate"), cells, [{ colour: "--accent", value: (cell) => cell.arrived / cell.seconds }], { format: count, least: 1 });
  lines(at("chart-waiting"), cells, [{ colour: "--why-delay", value: (cell) => cell.waiting }], { format: count, least: 4 });
  lines(at("chart-busy"), cells, [{ colour: "--why-full", value: (cell) => cell.busy }], { format: percent, least: 1 });
  lines(at("chart-latency"), cells, [
    { name: "p50", colour: "--why-idle", value: (cell) => cell.p50 },
    { name: "p95", colour: "--why-delay", value: (cell) => cell.p95 },
    { name: "p99", colour: "--why-volley-over", value: (cell) => cell.p99 },
  ], { format: milliseconds, least: 1 });
  columns(at("chart-sizes"), sizes);
  showReasons(reasons);
  showTotals(totals);
  showWorkers(workers);
  if (at("table-view").open) showLast();
}

function fault(place, error, traceback) {
  place.hidden = !error;
  if (!error || place.dataset.error === error) return;
  place.dataset.error = error;
  place.replaceChildren(make("p", {}, make("strong", {}, "Its last failure: "), error),
    traceback ? make("details", {}, make("summary", {}, "Traceback"), make("pre", { tabindex: "0" }, traceback)) : "");
}

function showReasons(reasons) {
  const all = Object.values(reasons).reduce((sum, batches) => sum + batches, 0);
  const list = at("legend");
  const key = Object.keys(reasons).join();
  if (list.dataset.key !== key) {
    list.dataset.key = key;
    list.replaceChildren(...Object.keys(reasons).map((reason) => make("li", { style: { "--swatch": `var(${hue(reason)})` } }, make("b", {}), ` ${why(reason)}`)));
  }
  Object.values(reasons).forEach((batches, place) => say(list.children[place].firstElementChild, batches / all < 0.005 ? "< 1 %" : percent(batches / all)));
}

function showTotals(totals) {
  const words = { answered: "Requests answered", failed: "Failed", expired: "Past their deadline", withdrawn: "Clients that left", refused: "Refused", reruns: "Run again", restarts: "Workers replaced" };
  const list = at("totals");
  if (!list.children.length) list.append(...Object.values(words).flatMap((word) => [make("dt", {}, word), make("dd", {})]));
  Object.keys(words).forEach((name, place) => say(list.children[2 * place + 1], totals[name].toLocaleString("en")));
}

function showWorkers(workers) {
  const list = at("workers-list");
  while (list.children.length > workers.length) list.lastElementChild.remove();
  workers.forEach((worker, place) => {
    const row = list.children[place] ?? list.appendChild(make("li", {}, make("div", { class: "line" }, make("b", {}), make("span", { class: "pill" }), ...Array.from({ length: 5 }, () => make("span", {}))), make("div", { class: "trouble", hidden: true })));
    const [id, state, ...facts] = row.firstElementChild.children;
    say(id, worker.id);
    state.dataset.state = worker.state;
    say(state, worker.state);
    const words = [`process ${worker.pid > 0 ? worker.pid : "\u2013"}`, worker.device, `${Math.round(worker.memory / 2 ** 20)} MB`, `for ${since(worker.since)}`, worker.restarts ? several(worker.restarts, "restart") : ""];
    words.forEach((word, index) => say(facts[index], word));
    fault(row.lastElementChild, worker.error, worker.traceback);
  });
}

function since(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
}

function showLast() {
  const rows = timeline.ended.slice(-LAST).reverse().map((batch) => make("tr", { title: describe(batch) },
    make("th", { scope: "row" }, String(batch.number)),
    ...[batch.instance, batch.rows, why(batch.reason), milliseconds(Math.max(...batch.waits)), milliseconds(1000 * (batch.end - batch.left)), batch.failed || "none"].map((cell) => make("td", {}, String(cell)))));
  at("last").replaceChildren(...rows);
}

// ---- the timeline's controls ----------------------------------------------------------------------------------------

function setPaused(isPaused) {
  timeline.pause(isPaused);
  at("pause").setAttribute("aria-pressed", isPaused);
  at("pause").textContent = isPaused ? "Go on" : "Pause";
}
timeline.onpause = () => setPaused(true);
at("pause").addEventListener("click", () => setPaused(timeline.pausedAt === null));
at("span").addEventListener("change", () => { timeline.span = Number(at("span").value); });
if (innerWidth < 600) {
  at("span").value = "0.5";
  timeline.span = 0.5;
}
at("table-view").addEventListener("toggle", showLast);

// ---- actions --------------------------------------------------------------------------------------------------------

let working = 0;

function enable() {
  at("model").classList.toggle("is-stale", !isOpen);
  const isIdle = isOpen && !working;
  const can = { "scale-now": isIdle, unload: isIdle, default: isIdle, load: isOpen, drain: isIdle && shown?.state === "ready" };
  for (const [id, isOn] of Object.entries(can)) at(id).disabled = !isOn;
}

async function act(verb, words, fields = {}) {
  const { name, version } = shown;
  working += 1;
  enable();
  told(`${words} \u2026`);
  try {
    told(await stream.order(verb, { model: name, version, ...fields }));
  } catch (error) {
    told(error.message, true);
  }
  working -= 1;
  enable();
}

function told(words, isBad = false) {
  at("said").classList.toggle("is-bad", isBad);
  say(at("said"), words);
}

for (const button of document.querySelectorAll("[data-step]")) {
  button.addEventListener("click", () => {
    at("workers").value = Math.min(4096, Math.max(0, Number(at("workers").value || 0) + Number(button.dataset.step)));
  });
}

at("scale").addEventListener("submit", (event) => {
  event.preventDefault();
  const workers = Number(at("workers").value);
  act("scale", `Scaling to ${several(workers, "worker")}`, { workers });
});
at("default").addEventListener("click", () => act("default", "Making it the default"));
at("drain").addEventListener("click", async () => {
  const text = "It takes nothing new, finishes what it has, and lets its workers go. Requests are refused until you scale it again.";
  if (await sure(`Drain ${shown.name} ${shown.version}?`, text, "Drain")) act("drain", "Draining");
});
at("unload").addEventListener("click", async () => {
  const text = "It takes nothing new, finishes what it has, and is gone from this server.";
  if (await sure(`Unload ${shown.name} ${shown.version}?`, text, "Unload")) act("unload", "Unloading");
});

let asked = 0; // questions so far

/** Asks before something that cannot be taken back at once. The last question is answered, also where the dialog has not yet said that the one before closed. */
function sure(title, text, verb) {
  const mine = ++asked;
  at("sure-title").textContent = title;
  at("sure-text").textContent = text;
  at("sure-yes").textContent = verb;
  return new Promise((resolve) => {
    const dialog = at("sure");
    dialog.returnValue = "";
    const heard = () => {
      if (mine === asked && dialog.open) return; // it tells of an earlier question
      dialog.removeEventListener("close", heard);
      resolve(mine === asked && dialog.returnValue === "yes");
    };
    dialog.addEventListener("close", heard);
    dialog.showModal();
  });
}
at("sure-form").addEventListener("submit", (event) => {
  event.preventDefault();
  at("sure").close("yes");
});
for (const button of document.querySelectorAll("[data-close]")) button.addEventListener("click", () => button.closest("dialog").close());

at("load").addEventListener("click", () => {
  at("load-fault").hidden = true;
  at("load-dialog").showModal();
});
at("load-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const name = at("load-name").value.trim();
  at("load-now").disabled = true;
  at("load-now").textContent = "Loading \u2026";
  try {
    await stream.order("load", { url: at("load-url").value.trim(), model: name, workers: Number(at("load-workers").value) });
    at("load-dialog").close();
    at("load-form").reset();
  } catch (error) {
    at("load-fault").textContent = error.message;
    at("load-fault").hidden = false;
  }
  at("load-now").disabled = false;
  at("load-now").textContent = "Load";
});

at("unlock").addEventListener("submit", (event) => {
  event.preventDefault();
  stream.key = at("key").value.replace(/[^\x21-\x7e]/g, ""); // what a header can carry, and no key has more
  hasKey = true;
  at("key").value = "";
  begin();
});

function begin() {
  const [name = "", version = ""] = location.hash.slice(1).split("/").map(decodeURIComponent);
  stream.open(name, version);
}
begin();
