// Charts drawn as SVG: areas for the outcomes of requests, small lines for tables.

import { fill, made, say } from "./dom.js";
import { exact, moment } from "./clock.js";
import { rate, short } from "./words.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDE = 600;
const HIGH = 180;
export const KINDS = [
  ["allowed", "allowed"],
  ["denied", "denied"],
  ["shadow_denied", "shadow-denied"],
];

function drawn(name, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

const tenths = (value) => Math.round(value * 10) / 10;
const point = (x, y) => `${tenths(x)},${tenths(y)}`;

function line(values, most, wide, high) {
  const step = wide / Math.max(1, values.length - 1);
  return values.map((value, index) => point(index * step, high - (value / most) * high)).join(" ");
}

/** The next round number above *value*: with one digit or a half. */
export function roundUp(value) {
  if (value <= 1) return 1;
  const ten = 10 ** Math.floor(Math.log10(value));
  return [1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10].map((one) => one * ten).find((one) => one >= value);
}

/** A small line; it only decorates figures that stand beside it. */
export class Sparkline {
  constructor() {
    this.allowed = drawn("polyline", { class: "line-allowed", "vector-effect": "non-scaling-stroke" });
    this.denied = drawn("polyline", { class: "line-denied", "vector-effect": "non-scaling-stroke" });
    this.element = drawn("svg", { class: "spark", viewBox: "0 0 100 24", preserveAspectRatio: "none", "aria-hidden": "true" }, this.allowed, this.denied);
  }

  /** Draw *series*, unless the series with the same *end* is drawn already. */
  show(series, end, denies = "denied") {
    const wanted = `${end} ${denies} ${Boolean(series)}`;
    if (wanted === this.shown) return;
    this.shown = wanted;
    const allowed = (denies === "denied" ? series?.allowed : series?.shadow_allowed) ?? [];
    const denied = series?.[denies] ?? [];
    const most = Math.max(1, ...allowed, ...denied);
    this.allowed.setAttribute("points", line(allowed, most, 100, 23));
    this.denied.setAttribute("points", denied.some(Boolean) ? line(denied, most, 100, 23) : "");
    this.denied.setAttribute("class", denies === "denied" ? "line-denied" : "line-shadow_denied");
  }
}

/** Requests a second over time: allowed and denied stacked, shadow-denied as a line. */
export class TrafficChart {
  constructor(place) {
    this.areas = ["allowed", "denied"].map((kind) => drawn("polygon", { class: `area-${kind}` }));
    this.edge = drawn("polyline", { class: "line-allowed", "vector-effect": "non-scaling-stroke" });
    this.shadow = drawn("polyline", { class: "line-shadow_denied", "vector-effect": "non-scaling-stroke" });
    this.cursor = drawn("line", { class: "cursor", y1: 0, y2: HIGH, "vector-effect": "non-scaling-stroke", visibility: "hidden" });
    const grid = [0.25, 0.5, 0.75, 1].map((part) =>
      drawn("line", { class: "grid", x1: 0, x2: WIDE, y1: HIGH * (1 - part), y2: HIGH * (1 - part), "vector-effect": "non-scaling-stroke" }));
    this.svg = drawn("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, preserveAspectRatio: "none", role: "img" },
      ...grid, ...this.areas, this.edge, this.shadow, this.cursor);
    this.scale = [1, 0.5, 0].map(() => made("span"));
    this.times = [0, 0.5, 1].map(() => made("span"));
    this.told = made("p", { class: "readout", "aria-hidden": "true" });
    this.table = made("div");
    this.details = made("details", { ontoggle: () => this.#tabulate() }, made("summary", { text: "Show as a table" }), this.table);
    this.note = made("p", { class: "note" });
    const legend = made("p", { class: "legend" }, ...KINDS.map(([kind, name]) => made("span", { class: `key-${kind}`, text: name })));
    place.append(this.note,
      made("div", { class: "chart" }, made("div", { class: "scale", "aria-hidden": "true" }, ...this.scale), this.svg,
        made("div", { class: "times", "aria-hidden": "true" }, ...this.times)),
      made("div", { class: "below" }, legend, this.told), this.details);
    this.spoken = 0;
    this.svg.addEventListener("pointermove", (event) => this.#point(event));
    this.svg.addEventListener("pointerleave", () => { this.at = undefined; this.#mark(); });
  }

  /** *series* has lists under the names of `KINDS`; *end* is the epoch second of the last. */
  show({ series, end, step, what, note }) {
    say(this.note, note);
    const allowed = series.allowed.map((one) => one / step);
    const denied = series.denied.map((one) => one / step);
    const shadow = series.shadow_denied.map((one) => one / step);
    const together = allowed.map((one, index) => one + (denied[index] ?? 0));
    const most = roundUp(Math.max(0, ...together, ...shadow));
    const top = line(allowed, most, WIDE, HIGH);
    this.areas[0].setAttribute("points", `0,${HIGH} ${top} ${WIDE},${HIGH}`);
    this.areas[1].setAttribute("points", `${top} ${line(together, most, WIDE, HIGH).split(" ").reverse().join(" ")}`);
    this.edge.setAttribute("points", top);
    this.shadow.setAttribute("points", shadow.some(Boolean) ? line(shadow, most, WIDE, HIGH) : "");
    this.scale.forEach((span, index) => say(span, `${short(most * [1, 0.5, 0][index])}${index ? "" : "/s"}`));
    const ago = (part) => Math.round((1 - part) * (allowed.length - 1) * step);
    this.times.forEach((span, index) => say(span, index === 2 ? "now" : spanned(ago(index / 2))));
    this.shown = { allowed, denied, shadow, end, step, what };
    this.#mark();
    this.#speak();
    if (this.details.open) this.#tabulate();
  }

  #point(event) {
    const box = this.svg.getBoundingClientRect();
    this.at = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
    this.#mark();
  }

  #mark() {
    if (this.at === undefined || !this.shown) {
      this.cursor.setAttribute("visibility", "hidden");
      say(this.told, "");
      return;
    }
    const { allowed, denied, shadow } = this.shown;
    const index = Math.round(this.at * (allowed.length - 1));
    const x = (index / Math.max(1, allowed.length - 1)) * WIDE;
    this.cursor.setAttribute("x1", x);
    this.cursor.setAttribute("x2", x);
    this.cursor.setAttribute("visibility", "visible");
    say(this.told, `${this.#time(index)}: ${rate(allowed[index])} allowed, ${rate(denied[index])} denied, ${rate(shadow[index])} shadow-denied`);
  }

  #time(index) {
    const { allowed, end, step } = this.shown;
    const date = new Date((end - (allowed.length - 1 - index) * step) * 1000);
    return step < 60 ? exact(date) : moment(date);
  }

  /** Update the text alternative, but not each second: a screen reader may be reading it. */
  #speak() {
    const { allowed, denied, shadow, step, what } = this.shown;
    const said = `${what}, ${spanned(allowed.length * step, "the last ")}`;
    if (this.spokenOf === said && performance.now() - this.spoken < 10_000) return;
    [this.spokenOf, this.spoken] = [said, performance.now()];
    const mean = (values) => rate(values.reduce((sum, one) => sum + one, 0) / Math.max(1, values.length));
    const peak = (values) => rate(Math.max(0, ...values));
    this.svg.setAttribute("aria-label", `${said}, per second: allowed ${mean(allowed)} on average, ${peak(allowed)} at most; `
      + `denied ${mean(denied)}, ${peak(denied)} at most; shadow-denied ${mean(shadow)}, ${peak(shadow)} at most.`);
  }

  #tabulate() {
    if (!this.details.open || !this.shown) return;
    const { allowed, denied, shadow } = this.shown;
    const every = Math.max(1, Math.floor(allowed.length / 12));
    const rows = [];
    for (let index = allowed.length - 1; index >= 0; index -= every) {
      rows.push(made("tr", {}, made("th", { scope: "row", text: this.#time(index) }),
        ...[allowed, denied, shadow].map((values) => made("td", { class: "number", text: rate(values[index]) }))));
    }
    const heads = ["Time", ...KINDS.map(([, name]) => `${name}/s`)].map((head, index) =>
      made("th", { scope: "col", class: index ? "number" : null, text: head }));
    fill(this.table, made("table", {}, made("thead", {}, made("tr", {}, ...heads)), made("tbody", {}, ...rows)));
  }
}

function spanned(seconds, lead = "") {
  const said = seconds < 60 ? `${seconds} s` : seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
  return lead ? lead + said : `${said} ago`;
}
