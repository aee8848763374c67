// Traffic and latency over time, of all requests or of the rule whose page is open; and the current figures.

import { $, setChildren, setText, showPairs } from "./dom.js";
import { admin } from "./api.js";
import { TimeChart } from "./charts.js";
import { failure } from "./findings.js";
import { showKeysOf } from "./keys.js";
import { range, route, setQuery } from "./routes.js";
import { duration, rate, share } from "./words.js";

const RECENT_SECONDS = 10;
const PAUSES_MS = { "5m": 1_500, "1h": 10_000 };
const LONG_PAUSE_MS = 30_000;
const requests = new TimeChart($("chart"), {
  lines: [{ name: "allowed", label: "allowed", isArea: true }, { name: "denied", label: "denied", isArea: true }, { name: "shadow_denied", label: "shadow-denied" }],
  format: rate, unit: "/s",
});
const latency = new TimeChart($("latency-chart"), {
  lines: [{ name: "p50", label: "50 %" }, { name: "p90", label: "90 %" }, { name: "p99", label: "99 %" }],
  format: duration, least: 0.00001, isLog: true,
});
let loaded = null; // the address and the time of the last answer
let isLoading = false;

const chosen = () => (route().page === "rule" ? route().name : null);
const isShown = () => ["overview", "rule"].includes(route().page);

export function startTraffic() {
  for (const button of document.querySelectorAll("[data-range]")) button.addEventListener("click", () => setQuery({ range: button.dataset.range }));
}

/** Show another range, or another rule. */
export function showTrafficRoute() {
  for (const button of document.querySelectorAll("[data-range]")) button.setAttribute("aria-pressed", String(button.dataset.range === range()));
  setText($("traffic-title"), chosen() === null ? "Traffic" : `Traffic of ${chosen()}`);
  loadTraffic();
}

/** The rates of *counts* in points that have been recorded for so many *seconds*; null without data. */
const ratesOf = (counts, seconds) => counts.map((count, index) => (seconds[index] ? count / seconds[index] : null));

async function loadTraffic() {
  if (!isShown() || isLoading) return;
  const rule = chosen();
  const path = `/traffic?range=${range()}${rule === null ? "" : `&rule=${encodeURIComponent(rule)}`}`;
  const now = performance.now();
  if (loaded?.path === path && now - loaded.at < (PAUSES_MS[range()] ?? LONG_PAUSE_MS)) return;
  isLoading = true;
  try {
    const { data } = await admin("GET", path);
    loaded = { path, at: now };
    setChildren($("chart-error"));
    if (rule === chosen()) draw(data, rule);
  } catch (error) {
    if (error.name !== "ProblemError") throw error;
    if (error.status) setChildren($("chart-error"), failure(error)); // else the line at the top says it
  } finally { isLoading = false; }
  const isOther = path !== `/traffic?range=${range()}${chosen() === null ? "" : `&rule=${encodeURIComponent(chosen())}`}`;
  if (isOther) loadTraffic();
}

function draw(data, rule) {
  const { seconds, end, step } = data;
  const outage = seconds.map((_, index) => Boolean(data.outage[index]));
  const own = rule === null ? data.requests : data.rule;
  const counts = {
    allowed: rule === null ? own.allowed : own?.allowed.map((one, index) => one + own.shadow_allowed[index]),
    denied: own?.denied, shadow_denied: own?.shadow_denied,
  };
  const values = Object.fromEntries(Object.entries(counts).map(([name, list]) => [name, list ? ratesOf(list, seconds) : seconds.map(() => null)]));
  requests.show({ values, outage, end, step, subject: rule === null ? "Requests per second" : `Requests per second decided by ${rule}` });
  latency.show({ values: data.latency, outage, end, step, subject: rule === null ? "Decision latency" : "Decision latency of all rules: a request has one decision" });
  if (rule !== null) showKeysOf(rule, data);
}

/** The current rates, averaged over some seconds. */
function currentRates(live) {
  if (chosen() === null) {
    const recent = (list) => (list ?? []).slice(-RECENT_SECONDS).reduce((sum, one) => sum + one, 0) / RECENT_SECONDS;
    const rates = Object.entries(live.series?.requests ?? {}).map(([kind, list]) => [kind, recent(list)]);
    const shadow = (live.rules ?? []).reduce((sum, one) => sum + (one.per_second?.shadow_denied ?? 0), 0);
    return { ...Object.fromEntries(rates), shadow_denied: shadow };
  }
  const now = (live.rules ?? []).find((one) => one.rule_id === chosen())?.per_second ?? {};
  return { ...now, allowed: (now.allowed ?? 0) + (now.shadow_allowed ?? 0) };
}

export function showTraffic(live) {
  if (!isShown()) return;
  const now = currentRates(live);
  const isDenying = (now.denied ?? 0) > 0;
  showPairs($("tiles"), [
    ["Allowed /s", rate(now.allowed), "is-allowed"],
    ["Denied /s", rate(now.denied), `is-denied${isDenying ? " is-some" : ""}`],
    ["Shadow-denied /s", rate(now.shadow_denied), "is-shadow_denied"],
    ["Share denied", share(now.denied ?? 0, (now.allowed ?? 0) + (now.denied ?? 0)), isDenying ? "is-denied is-some" : ""],
    ["99 % decided within", duration(live.latency?.p99), ""],
  ]);
  loadTraffic();
}
