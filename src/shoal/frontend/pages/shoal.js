// What both pages share: making elements, writing numbers, and the words for why a batch left.

/** An element: `make("p", {class: "x"}, "text", child)`. Text is never read as HTML. */
export function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same for drawings. */
export function draw(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "style") Object.entries(value).forEach(([key, setting]) => element.style.setProperty(key, setting));
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Text is set only where it differs: whoever selects it, or hears it read, is not disturbed. */
export function say(element, text) {
  if (element.textContent !== String(text)) element.textContent = text;
}

export function milliseconds(duration) {
  if (duration === null || duration === undefined) return "\u2013";
  if (duration >= 1000) return `${(duration / 1000).toFixed(duration < 10_000 ? 2 : 1)} s`;
  return `${duration < 10 ? duration.toFixed(1) : Math.round(duration)} ms`;
}

/** 0.4, 12, 3,400, 41k. */
export function count(number) {
  if (number >= 100_000) return `${Math.round(number / 1000)}k`;
  if (number >= 100 || Number.isInteger(number)) return Math.round(number).toLocaleString("en");
  return number < 10 ? number.toFixed(1) : String(Math.round(number));
}

export const several = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

const WHY = {
  idle: "an instance was free",
  full: "it was full",
  delay: "its delay was over",
  preferred: "it had a preferred size",
  deadline: "a deadline was near",
  "return-over": "its wait for returning clients was over",
  "volley-over": "its wait for the rest of a burst was over",
  "spacing-over": "its turn between the instances had come",
  oldest: "its requests came before the others",
  single: "the model takes one at a time",
  rerun: "it was run again after a failure",
  sequence: "it was its sequences' turn",
  probe: "somebody had to try how long such a batch takes",
  ensemble: "its steps are run by other models",
};

/** Why a batch left: what follows `because`. */
export const why = (reason) => WHY[reason] ?? `of "${reason}"`;

/** The name of the colour for it, a CSS variable. */
export const hue = (reason) => `--why-${reason in WHY && reason !== "ensemble" ? reason : "other"}`;
