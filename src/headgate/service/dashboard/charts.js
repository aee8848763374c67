// Charts drawn as SVG: areas and lines over time, small lines for tables.

import { element, setChildren, setText } from "./dom.js";
import { exact, moment } from "./clock.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 600;
const HEIGHT = 180;

function svgElement(name, attributes = {}, ...children) {
  const created = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) created.setAttribute(key, value);
  created.append(...children);
  return created;
}

const tenths = (value) => Math.round(value * 10) / 10;
const isKnown = (value) => value !== null && value !== undefined;

/** The points of *values*, from the left to the right edge. */
function points(values, max, width, height) {
  const step = width / Math.max(1, values.length - 1);
  return values.map((value, index) => `${tenths(index * step)},${tenths(height - (value / max) * height)}`).join(" ");
}

/** The runs of places for which *isIn* is true: `[first, end]`. */
function runsOf(length, isIn) {
  const runs = [];
  for (let index = 0; index < length; index += 1) {
    if (!isIn(index)) continue;
    if (runs.length && runs.at(-1)[1] === index) runs.at(-1)[1] = index + 1;
    else runs.push([index, index + 1]);
  }
  return runs;
}

/** The next round number above *value*, *least* or more: with one digit or a half. */
function roundUp(value, least) {
  if (value <= least) return least;
  const ten = 10 ** Math.floor(Math.log10(value));
  return [1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10].map((one) => one * ten).find((one) => one >= value) ?? value;
}

/** A small line chart. Hidden from screen readers: the same figures stand beside it. */
export class Sparkline {
  constructor() {
    this.allowed = svgElement("polyline", { class: "line-allowed", "vector-effect": "non-scaling-stroke" });
    this.denied = svgElement("polyline", { class: "line-denied", "vector-effect": "non-scaling-stroke" });
    this.element = svgElement("svg", { class: "spark", viewBox: "0 0 100 24", preserveAspectRatio: "none", "aria-hidden": "true" }, this.allowed, this.denied);
  }

  /** Draw *series*, unless the series with this *end* is drawn already. */
  show(series, end, deniedKind = "denied") {
    const version = `${end} ${deniedKind} ${Boolean(series)}`;
    if (version === this.version) return;
    this.version = version;
    const allowed = (deniedKind === "denied" ? series?.allowed : series?.shadow_allowed) ?? [];
    const denied = series?.[deniedKind] ?? [];
    const max = Math.max(1, ...allowed, ...denied);
    this.allowed.setAttribute("points", points(allowed, max, 100, 23));
    this.denied.setAttribute("points", denied.some(Boolean) ? points(denied, max, 100, 23) : "");
    this.denied.setAttribute("class", deniedKind === "denied" ? "line-denied" : "line-shadow_denied");
  }
}

/**
 * Values over time. *lines* are `{name, label, isArea}`: areas are stacked, lines are not. *format* writes
 * a value, *unit* follows the largest one on the scale. The scale ends at *least* or above; if it *isLog*,
 * it is logarithmic, begins at *least* and ends at a power of ten.
 */
export class TimeChart {
  constructor(place, { lines, format, unit = "", least = 1, isLog = false }) {
    Object.assign(this, { lines, format, unit, least, isLog });
    this.marks = lines.map(({ name, isArea }) => svgElement("path", { class: `${isArea ? "area" : "line"}-${name}`, "vector-effect": "non-scaling-stroke" }));
    this.cursor = svgElement("line", { class: "cursor", y1: 0, y2: HEIGHT, "vector-effect": "non-scaling-stroke", visibility: "hidden" });
    this.bands = svgElement("g", { class: "outages" });
    const grid = [0.25, 0.5, 0.75, 1].map((part) =>
      svgElement("line", { class: "grid", x1: 0, x2: WIDTH, y1: HEIGHT * (1 - part), y2: HEIGHT * (1 - part), "vector-effect": "non-scaling-stroke" }));
    this.svg = svgElement("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" }, this.bands, ...grid, ...this.marks, this.cursor);
    this.scale = [1, 0.5, 0].map(() => element("span"));
    this.times = [0, 0.5, 1].map(() => element("span"));
    this.readout = element("p", { class: "readout", "aria-hidden": "true" });
    this.table = element("div");
    this.details = element("details", { ontoggle: () => this.#showTable() }, element("summary", { text: "Show as a table" }), this.table);
    this.note = element("h3");
    this.legend = element("p", { class: "legend" }, ...lines.map(({ name, label }) => element("span", { class: `key-${name}`, text: label })),
      element("span", { class: "key-outage", text: "store unavailable", hidden: true }), element("span", { class: "key-gap", text: "gap: no data", hidden: true }));
    place.append(this.note,
      element("div", { class: "chart" }, element("div", { class: "scale", "aria-hidden": "true" }, ...this.scale), this.svg,
        element("div", { class: "times", "aria-hidden": "true" }, ...this.times)),
      element("div", { class: "below" }, this.legend, this.readout), this.details);
    this.describedAt = 0;
    this.svg.addEventListener("pointermove", (event) => this.#movePointer(event));
    this.svg.addEventListener("pointerleave", () => { this.at = undefined; this.#showCursor(); });
  }

  /**
   * *values* has a list for each line, with null where there is no data; its last point begins at the epoch
   * second *end*. *outage* is true where the store was unavailable.
   */
  show({ values, outage, end, step, subject }) {
    setText(this.note, subject);
    const length = values[this.lines[0].name].length;
    this.data = { values, outage, length, end, step, subject };
    let stack = new Array(length).fill(0);
    const tops = this.lines.map(({ name, isArea }) => {
      if (!isArea) return values[name];
      stack = stack.map((one, index) => one + (values[name][index] ?? 0));
      return stack;
    });
    const highest = Math.max(0, ...tops.flat().filter(isKnown));
    const max = this.isLog ? Math.max(100 * this.least, 10 ** Math.ceil(Math.log10(highest || this.least) - 1e-9)) : roundUp(highest, this.least);
    const part = (value) => (this.isLog ? Math.log(Math.max(value, this.least) / this.least) / Math.log(max / this.least) : value / max);
    const x = (index) => tenths((index * WIDTH) / Math.max(1, length - 1));
    const y = (value) => tenths(HEIGHT - part(value) * HEIGHT);
    let floor = new Array(length).fill(0);
    this.lines.forEach(({ name, isArea }, place) => {
      const parts = runsOf(length, (index) => isKnown(values[name][index])).map(([first, last]) => {
        const run = (list) => list.slice(first, last).map((value, index) => `${x(first + index)},${y(value)}`);
        if (isArea) return `M${[...run(tops[place]), ...run(floor).reverse()].join("L")}Z`;
        return last - first > 1 ? `M${run(tops[place]).join("L")}` : `M${run(tops[place])}h.1`;
      });
      // A line that is zero all the time is left out: it would cover the axis.
      this.marks[place].setAttribute("d", isArea || values[name].some(Boolean) ? parts.join("") : "");
      if (isArea) floor = tops[place];
    });
    const half = WIDTH / Math.max(1, length - 1) / 2;
    const bands = runsOf(length, (index) => outage[index]);
    this.bands.replaceChildren(...bands.map(([first, last]) =>
      svgElement("rect", { class: "outage", x: tenths(x(first) - half), y: 0, width: tenths(2 * half * (last - first)), height: HEIGHT })));
    this.legend.querySelector(".key-outage").hidden = !bands.length;
    this.legend.querySelector(".key-gap").hidden = values[this.lines[0].name].every(isKnown);
    const marks = this.isLog ? [max, Math.sqrt(max * this.least), this.least] : [max, max / 2, 0];
    this.scale.forEach((span, index) => setText(span, `${this.format(marks[index])}${index ? "" : this.unit}`));
    this.times.forEach((span, index) => setText(span, index === 2 ? "now" : `${roundDuration((1 - index / 2) * length * step)} ago`));
    this.#showCursor();
    this.#describe();
    if (this.details.open) this.#showTable();
  }

  #movePointer(event) {
    const box = this.svg.getBoundingClientRect();
    this.at = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
    this.#showCursor();
  }

  #showCursor() {
    if (this.at === undefined || !this.data) {
      this.cursor.setAttribute("visibility", "hidden");
      setText(this.readout, "");
      return;
    }
    const { values, outage, length } = this.data;
    const index = Math.round(this.at * (length - 1));
    const x = (index / Math.max(1, length - 1)) * WIDTH;
    this.cursor.setAttribute("x1", x);
    this.cursor.setAttribute("x2", x);
    this.cursor.setAttribute("visibility", "visible");
    const figures = this.lines.filter(({ name }) => isKnown(values[name][index])).map(({ name, label }) => `${label} ${this.format(values[name][index])}${this.unit}`);
    setText(this.readout, `${this.#time(index)}: ${figures.join(", ") || "no data"}${outage[index] ? ", store unavailable" : ""}`);
  }

  #time(index) {
    const { length, end, step } = this.data;
    const date = new Date((end - (length - 1 - index) * step) * 1000);
    return step < 60 ? exact(date) : moment(date);
  }

  /** Update the text alternative at most every 10 seconds: a screen reader may be reading it. */
  #describe() {
    const { values, outage, length, step, subject } = this.data;
    const scope = `${subject}, the last ${roundDuration(length * step)}`;
    if (this.describedScope === scope && performance.now() - this.describedAt < 10_000) return;
    [this.describedScope, this.describedAt] = [scope, performance.now()];
    const figures = this.lines.map(({ name, label }) => {
      const known = values[name].filter(isKnown);
      if (!known.length) return `${label}: no data`;
      const mean = known.reduce((sum, one) => sum + one, 0) / known.length;
      return `${label} ${this.format(mean)}${this.unit} on average, ${this.format(Math.max(...known))}${this.unit} at most`;
    });
    this.svg.setAttribute("aria-label", `${scope}: ${figures.join("; ")}.${outage.some(Boolean) ? " The store was unavailable for a part of the time." : ""}`);
  }

  #showTable() {
    if (!this.details.open || !this.data) return;
    const { values, length } = this.data;
    const every = Math.max(1, Math.floor(length / 12));
    const rows = [];
    for (let index = length - 1; index >= 0; index -= every) {
      rows.push(element("tr", {}, element("th", { scope: "row", text: this.#time(index) }),
        ...this.lines.map(({ name }) => element("td", { class: "number", text: isKnown(values[name][index]) ? this.format(values[name][index]) : "–" }))));
    }
    const heads = ["Time", ...this.lines.map(({ label }) => `${label}${this.unit}`)].map((head, index) =>
      element("th", { scope: "col", class: index ? "number" : null, text: head }));
    setChildren(this.table, element("table", {}, element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...rows)));
  }
}

function roundDuration(seconds) {
  if (seconds < 60) return `${Math.round(seconds)} s`;
  return seconds < 5400 ? `${tenths(seconds / 60)} min` : `${tenths(seconds / 3600)} h`;
}
