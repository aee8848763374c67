// Live traffic: current figures, and the chart of all requests or of one rule.

import { $, made, pairs } from "./dom.js";
import { KINDS, TrafficChart } from "./charts.js";
import { rate, share } from "./words.js";

const ALL = "";
const chart = new TrafficChart($("chart"));
const LATELY = 10;
let chosen = ALL;
let range = "series";
let last = null;
let hears = () => {};

export const chosenRule = () => chosen;

/** Show one rule in the chart, or all with "". */
export function choose(ruleId) {
  chosen = ruleId;
  $("traffic-rule").value = ruleId;
  if (last) showTraffic(last);
  hears(ruleId);
}

export function startTraffic(onChosen) {
  hears = onChosen;
  $("traffic-rule").addEventListener("change", (event) => choose(event.target.value));
  for (const button of document.querySelectorAll("[data-range]")) {
    button.addEventListener("click", () => {
      range = button.dataset.range;
      for (const one of document.querySelectorAll("[data-range]")) one.setAttribute("aria-pressed", String(one === button));
      if (last) showTraffic(last);
    });
  }
}

/** The lists of several rules added up. */
function summed(lists) {
  const sum = [];
  for (const list of lists) (list ?? []).forEach((one, index) => { sum[index] = (sum[index] ?? 0) + one; });
  return sum;
}

function seriesOf(told) {
  const rules = told?.rules ?? {};
  if (chosen !== ALL) {
    const own = Object.hasOwn(rules, chosen) ? rules[chosen] : {};
    return filled({ ...own, allowed: summed([own.allowed, own.shadow_allowed]) }, told);
  }
  const shadow = summed(Object.values(rules).map((one) => one.shadow_denied)); // of each rule that said so
  return filled({ ...told?.requests, shadow_denied: shadow }, told);
}

function filled(series, told) {
  const length = Math.max(...KINDS.map(([kind]) => series[kind]?.length ?? 0), told?.step === 60 ? 180 : 120);
  return Object.fromEntries(KINDS.map(([kind]) => {
    const values = series[kind] ?? [];
    return [kind, [...new Array(length - values.length).fill(0), ...values]];
  }));
}

function figures(live) {
  if (chosen === ALL) {
    const lately = (list) => (list ?? []).slice(-LATELY).reduce((sum, one) => sum + one, 0) / LATELY;
    const known = Object.entries(live.series?.requests ?? {}).map(([kind, list]) => [kind, lately(list)]);
    const shadow = (live.rules ?? []).reduce((sum, one) => sum + (one.per_second?.shadow_denied ?? 0), 0);
    return { ...Object.fromEntries(known), shadow_denied: shadow };
  }
  const now = (live.rules ?? []).find((one) => one.rule_id === chosen)?.per_second ?? {};
  return { ...now, allowed: (now.allowed ?? 0) + (now.shadow_allowed ?? 0) };
}

export function showTraffic(live) {
  last = live;
  offer((live.rules ?? []).map((one) => one.rule_id));
  const now = figures(live);
  const refuses = (now.denied ?? 0) > 0;
  pairs($("tiles"), [
    ["Allowed /s", rate(now.allowed), "is-allowed"],
    ["Denied /s", rate(now.denied), `is-denied${refuses ? " is-some" : ""}`],
    ["Shadow-denied /s", rate(now.shadow_denied), "is-shadow_denied"],
    ["Share denied", share(now.denied ?? 0, (now.allowed ?? 0) + (now.denied ?? 0)), refuses ? "is-denied is-some" : ""],
  ]);
  const told = live[range] ?? {};
  const what = chosen === ALL ? "Requests" : `Requests decided by ${chosen}`;
  chart.show({ series: seriesOf(told), end: told.end ?? live.at, step: told.step ?? 1, what, note: `${what}, per second` });
}

function offer(ids) {
  const select = $("traffic-rule");
  const wanted = [ALL, ...new Set([...ids, ...(chosen === ALL ? [] : [chosen])])];
  if (wanted.length === select.options.length && wanted.every((id, index) => select.options[index].value === id)) return;
  select.replaceChildren(...wanted.map((id) => made("option", { value: id, text: id === ALL ? "all requests" : id })));
  select.value = chosen;
}
