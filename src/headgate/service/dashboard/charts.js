// Charts drawn as SVG: areas for the outcomes of requests, small lines for tables.

import { element, setChildren, setText } from "./dom.js";
import { exact, moment } from "./clock.js";
import { rate, short } from "./words.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 600;
const HEIGHT = 180;
export const OUTCOMES = [
  ["allowed", "allowed"],
  ["denied", "denied"],
  ["shadow_denied", "shadow-denied"],
];

function svgElement(name, attributes = {}, ...children) {
  const created = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) created.setAttribute(key, value);
  created.append(...children);
  return created;
}

const tenths = (value) => Math.round(value * 10) / 10;
const point = (x, y) => `${tenths(x)},${tenths(y)}`;

/** The points of *values*, the last of which is at the right edge; *length* points fill the width. */
function points(values, max, width, height, length = values.length) {
  const step = width / Math.max(1, length - 1);
  const first = length - values.length;
  return values.map((value, index) => point((first + index) * step, height - (value / max) * height)).join(" ");
}

/** The next round number above *value*: with one digit or a half. */
function roundUp(value) {
  if (value <= 1) return 1;
  const ten = 10 ** Math.floor(Math.log10(value));
  return [1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10].map((one) => one * ten).find((one) => one >= value);
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

/** Requests per second over time: allowed and denied are stacked, shadow-denied is a line. */
export class TrafficChart {
  constructor(place) {
    this.areas = ["allowed", "denied"].map((kind) => svgElement("polygon", { class: `area-${kind}` }));
    this.edge = svgElement("polyline", { class: "line-allowed", "vector-effect": "non-scaling-stroke" });
    this.shadow = svgElement("polyline", { class: "line-shadow_denied", "vector-effect": "non-scaling-stroke" });
    this.cursor = svgElement("line", { class: "cursor", y1: 0, y2: HEIGHT, "vector-effect": "non-scaling-stroke", visibility: "hidden" });
    this.bands = svgElement("g", { class: "outages" });
    const grid = [0.25, 0.5, 0.75, 1].map((part) =>
      svgElement("line", { class: "grid", x1: 0, x2: WIDTH, y1: HEIGHT * (1 - part), y2: HEIGHT * (1 - part), "vector-effect": "non-scaling-stroke" }));
    this.svg = svgElement("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" },
      this.bands, ...grid, ...this.areas, this.edge, this.shadow, this.cursor);
    this.scale = [1, 0.5, 0].map(() => element("span"));
    this.times = [0, 0.5, 1].map(() => element("span"));
    this.readout = element("p", { class: "readout", "aria-hidden": "true" });
    this.table = element("div");
    this.details = element("details", { ontoggle: () => this.#showTable() }, element("summary", { text: "Show as a table" }), this.table);
    this.note = element("p", { class: "note" });
    this.legend = element("p", { class: "legend" }, ...OUTCOMES.map(([kind, name]) => element("span", { class: `key-${kind}`, text: name })),
      element("span", { class: "key-outage", text: "store gone", hidden: true }));
    place.append(this.note,
      element("div", { class: "chart" }, element("div", { class: "scale", "aria-hidden": "true" }, ...this.scale), this.svg,
        element("div", { class: "times", "aria-hidden": "true" }, ...this.times)),
      element("div", { class: "below" }, this.legend, this.readout), this.details);
    this.describedAt = 0;
    this.svg.addEventListener("pointermove", (event) => this.#movePointer(event));
    this.svg.addEventListener("pointerleave", () => { this.at = undefined; this.#showCursor(); });
  }

  /**
   * *series* has lists under the names of `OUTCOMES`, whose last point is at the epoch second *end*. They may
   * have fewer points than *length*: there is no data before. *outage* is true where the store was gone.
   */
  show({ series, outage, length, end, step, subject, note }) {
    setText(this.note, note);
    this.#showOutages(outage, length);
    const allowed = series.allowed.map((one) => one / step);
    const denied = series.denied.map((one) => one / step);
    const shadow = series.shadow_denied.map((one) => one / step);
    const stacked = allowed.map((one, index) => one + (denied[index] ?? 0));
    const max = roundUp(Math.max(0, ...stacked, ...shadow));
    const line = (values) => points(values, max, WIDTH, HEIGHT, length);
    const top = line(allowed);
    const left = tenths(((length - allowed.length) * WIDTH) / Math.max(1, length - 1));
    this.areas[0].setAttribute("points", `${left},${HEIGHT} ${top} ${WIDTH},${HEIGHT}`);
    this.areas[1].setAttribute("points", `${top} ${line(stacked).split(" ").reverse().join(" ")}`);
    this.edge.setAttribute("points", top);
    this.shadow.setAttribute("points", shadow.some(Boolean) ? line(shadow) : "");
    this.scale.forEach((span, index) => setText(span, `${short(max * [1, 0.5, 0][index])}${index ? "" : "/s"}`));
    const age = (part) => Math.round((1 - part) * (length - 1) * step);
    this.times.forEach((span, index) => setText(span, index === 2 ? "now" : `${roundDuration(age(index / 2))} ago`));
    this.data = { allowed, denied, shadow, outage, length, end, step, subject };
    this.#showCursor();
    this.#describe();
    if (this.details.open) this.#showTable();
  }

  /** Draw a band for each time in which the store was gone. */
  #showOutages(outage, length) {
    const step = WIDTH / Math.max(1, length - 1);
    const bands = [];
    let first = null;
    for (let index = 0; index <= length; index += 1) {
      if (outage[index] && first === null) first = index;
      if (!outage[index] && first !== null) {
        bands.push(svgElement("rect", { class: "outage", x: tenths((first - 0.5) * step), y: 0, width: tenths((index - first) * step), height: HEIGHT }));
        first = null;
      }
    }
    this.bands.replaceChildren(...bands);
    this.legend.querySelector(".key-outage").hidden = !bands.length;
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
    const { allowed, denied, shadow, outage, length } = this.data;
    const place = Math.round(this.at * (length - 1));
    const index = place - (length - allowed.length);
    const x = (place / Math.max(1, length - 1)) * WIDTH;
    this.cursor.setAttribute("x1", x);
    this.cursor.setAttribute("x2", x);
    this.cursor.setAttribute("visibility", "visible");
    if (index < 0) return setText(this.readout, `${this.#time(index)}: no data`);
    const store = outage[place] ? ", the store was gone" : "";
    setText(this.readout, `${this.#time(index)}: ${rate(allowed[index])} allowed, ${rate(denied[index])} denied, ${rate(shadow[index])} shadow-denied${store}`);
  }

  #time(index) {
    const { allowed, end, step } = this.data;
    const date = new Date((end - (allowed.length - 1 - index) * step) * 1000);
    return step < 60 ? exact(date) : moment(date);
  }

  /** Update the text alternative at most every 10 seconds: a screen reader may be reading it. */
  #describe() {
    const { allowed, denied, shadow, outage, step, subject } = this.data;
    const scope = `${subject}, the last ${roundDuration(allowed.length * step)}`;
    if (this.describedScope === scope && performance.now() - this.describedAt < 10_000) return;
    [this.describedScope, this.describedAt] = [scope, performance.now()];
    const mean = (values) => rate(values.reduce((sum, one) => sum + one, 0) / Math.max(1, values.length));
    const peak = (values) => rate(Math.max(0, ...values));
    this.svg.setAttribute("aria-label", `${scope}, per second: allowed ${mean(allowed)} on average, ${peak(allowed)} at most; `
      + `denied ${mean(denied)}, ${peak(denied)} at most; shadow-denied ${mean(shadow)}, ${peak(shadow)} at most.${outage.some(Boolean) ? " The store was gone for a part of the time." : ""}`);
  }

  #showTable() {
    if (!this.details.open || !this.data) return;
    const { allowed, denied, shadow } = this.data;
    const every = Math.max(1, Math.floor(allowed.length / 12));
    const rows = [];
    for (let index = allowed.length - 1; index >= 0; index -= every) {
      rows.push(element("tr", {}, element("th", { scope: "row", text: this.#time(index) }),
        ...[allowed, denied, shadow].map((values) => element("td", { class: "number", text: rate(values[index]) }))));
    }
    const heads = ["Time", ...OUTCOMES.map(([, name]) => `${name}/s`)].map((head, index) =>
      element("th", { scope: "col", class: index ? "number" : null, text: head }));
    setChildren(this.table, element("table", {}, element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...rows)));
  }
}

function roundDuration(seconds) {
  if (seconds < 60) return `${seconds} s`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
}
