// Live traffic: current figures, and the chart of all requests or of one rule.

import { $, element, showPairs } from "./dom.js";
import { OUTCOMES, TrafficChart } from "./charts.js";
import { rate, share } from "./words.js";

const ALL = "";
const chart = new TrafficChart($("chart"));
const RECENT_SECONDS = 10;
let chosen = ALL;
let range = "series";
let lastLive = null;
let onChosen = () => {};

export const chosenRule = () => chosen;

/** Show one rule in the chart, or all with "". */
export function choose(ruleId) {
  chosen = ruleId;
  $("traffic-rule").value = ruleId;
  if (lastLive) showTraffic(lastLive);
  onChosen(ruleId);
}

export function startTraffic(callback) {
  onChosen = callback;
  $("traffic-rule").addEventListener("change", (event) => choose(event.target.value));
  for (const button of document.querySelectorAll("[data-range]")) {
    button.addEventListener("click", () => {
      range = button.dataset.range;
      for (const one of document.querySelectorAll("[data-range]")) one.setAttribute("aria-pressed", String(one === button));
      if (lastLive) showTraffic(lastLive);
    });
  }
}

/** The sums of several lists, element by element. */
function sumOf(lists) {
  const sum = [];
  for (const list of lists) (list ?? []).forEach((one, index) => { sum[index] = (sum[index] ?? 0) + one; });
  return sum;
}

function seriesOf(timeline, began) {
  const rules = timeline?.rules ?? {};
  if (chosen !== ALL) {
    const own = Object.hasOwn(rules, chosen) ? rules[chosen] : {};
    return known({ ...own, allowed: sumOf([own.allowed, own.shadow_allowed]) }, timeline, began);
  }
  const shadow = sumOf(Object.values(rules).map((one) => one.shadow_denied)); // of each rule that has it
  return known({ ...timeline?.requests, shadow_denied: shadow }, timeline, began);
}

const lengthOf = (timeline) => (timeline?.step === 60 ? 180 : 120);

/** Lists of one length, without the points before the start of the node: there is no data. */
function known(series, timeline, began) {
  const step = timeline?.step ?? 1;
  const recorded = Math.ceil(((timeline?.end ?? 0) + step - (began ?? 0)) / step);
  const length = Math.max(1, Math.min(lengthOf(timeline), recorded));
  return Object.fromEntries(OUTCOMES.map(([kind]) => {
    const values = (series[kind] ?? []).slice(-length);
    return [kind, [...new Array(length - values.length).fill(0), ...values]];
  }));
}

function figures(live) {
  if (chosen === ALL) {
    const recentRate = (list) => (list ?? []).slice(-RECENT_SECONDS).reduce((sum, one) => sum + one, 0) / RECENT_SECONDS;
    const rates = Object.entries(live.series?.requests ?? {}).map(([kind, list]) => [kind, recentRate(list)]);
    const shadow = (live.rules ?? []).reduce((sum, one) => sum + (one.per_second?.shadow_denied ?? 0), 0);
    return { ...Object.fromEntries(rates), shadow_denied: shadow };
  }
  const now = (live.rules ?? []).find((one) => one.rule_id === chosen)?.per_second ?? {};
  return { ...now, allowed: (now.allowed ?? 0) + (now.shadow_allowed ?? 0) };
}

export function showTraffic(live) {
  lastLive = live;
  showOptions((live.rules ?? []).map((one) => one.rule_id));
  const now = figures(live);
  const isDenying = (now.denied ?? 0) > 0;
  showPairs($("tiles"), [
    ["Allowed /s", rate(now.allowed), "is-allowed"],
    ["Denied /s", rate(now.denied), `is-denied${isDenying ? " is-some" : ""}`],
    ["Shadow-denied /s", rate(now.shadow_denied), "is-shadow_denied"],
    ["Share denied", share(now.denied ?? 0, (now.allowed ?? 0) + (now.denied ?? 0)), isDenying ? "is-denied is-some" : ""],
  ]);
  const timeline = live[range] ?? {};
  const subject = chosen === ALL ? "Requests" : `Requests decided by ${chosen}`;
  chart.show({ series: seriesOf(timeline, live.began), outage: timeline.outage ?? [], length: lengthOf(timeline), end: timeline.end ?? live.at, step: timeline.step ?? 1, subject, note: `${subject}, per second` });
}

function showOptions(ids) {
  const select = $("traffic-rule");
  const values = [ALL, ...new Set([...ids, ...(chosen === ALL ? [] : [chosen])])];
  if (values.length === select.options.length && values.every((id, index) => select.options[index].value === id)) return;
  select.replaceChildren(...values.map((id) => element("option", { value: id, text: id === ALL ? "all requests" : id })));
  select.value = chosen;
}
