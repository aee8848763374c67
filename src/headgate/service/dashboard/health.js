// The status line, latency, the store, queues and leases.

import { $, Table, codeColumn, element, setChildren, setText, showPairs, textColumn } from "./dom.js";
import { exact, zone } from "./clock.js";
import { count, duration, plural } from "./words.js";

let readiness = null;
let outage = null;
let lastLive = null;

const queues = new Table("Queues", [
  codeColumn("Gate", (row) => row.gate), textColumn("Waiting", (row) => count(row.waiting), "number"),
  textColumn("In flight", (row) => (row.slots ? `${count(row.in_flight)} of ${count(row.slots)}` : count(row.in_flight)), "number"),
  textColumn("Wait", (row) => duration(row.wait_seconds), "number"),
], { empty: "No rule has a queue here." });

const bounds = new Table("Leases", [
  codeColumn("Rule", (row) => row.rule_id ?? ""), textColumn("Overshoot at most", (row) => count(row.units), "number"),
  textColumn("Nodes", (row) => count(row.holders), "number"),
]);
const boundsPart = element("div", { hidden: true }, element("h3", { text: "Leases" }),
  element("p", { class: "note", text: "Nodes lease units from the store in advance and decide with them locally. In the worst case, this many requests above the limit are allowed." }),
  bounds.element);

export function startHealth() {
  setChildren($("queues"), queues.element);
  setChildren($("bounds"), boundsPart);
}

export function setReadiness(reply) {
  readiness = reply;
  if (document.body.dataset.access !== "open") outage = null; // otherwise the next live data clears it
  showState(null);
}

export function setOutage(current) {
  outage = current;
  showState(null);
}

const STORES = new Map([["redis", "Redis"], ["rediss", "Redis"], ["memory", "Memory"], ["shm", "Shared memory"]]);

/** The kind of the store: "Redis". */
const storeName = (store) => STORES.get((store?.url ?? "").split(/[:+]/)[0]) ?? "Store";

/** The state of the store: "circuit open", and for how long if *hasTime*. */
function storeWords(store, { hasTime = false } = {}) {
  if (store?.state === "ok") return "healthy";
  if (store?.state !== "open") return store?.reason ?? "failing";
  if (hasTime && store.open_for) return `circuit open for ${duration(Math.round(1e3 * store.open_for) / 1e3)}`;
  return `circuit open${store.reason ? ` (${store.reason})` : ""}`;
}

/** The current problems, the worst first. */
function problemsOf(live) {
  // The store is named once, by its state, and not again by each probe that failed.
  const isStoreOut = live && live.store?.state !== "ok";
  const reasons = [...(readiness?.reasons ?? []), ...(live?.store?.trouble ?? [])];
  const problems = isStoreOut ? reasons.filter((one) => !/^the store /.test(one)) : reasons;
  if (!live) return problems;
  if (isStoreOut) problems.unshift(`${storeName(live.store)}: ${storeWords(live.store)}`);
  if (live.store?.fail_mode) problems.push("rules apply their on_store_failure");
  if (live.policy?.trouble) problems.push(`rules: ${live.policy.trouble}`);
  if (live.policy?.problems) problems.push(`the newest policy has ${plural(live.policy.problems, "error")}; the previous one stays in force`);
  if (live.policy?.stale) problems.push("the policy may be stale");
  if (live.factor < 1) problems.push(`under pressure: adaptive limits are at ${Math.round(100 * live.factor)} % of their configured value`);
  return [...new Set(problems)];
}

/** Show the line at the top. Screen readers announce its changes, so it has no figures that change each second. */
function showState(live) {
  const place = $("state");
  if (outage) {
    place.dataset.level = "bad";
    const lead = outage.status ? "No data" : "No response";
    setText(place, `${lead} since ${exact(outage.since)} (${outage.message}). Trying again${outage.pause >= 2 ? `, every ${Math.round(outage.pause)} s` : ""}.`);
    document.body.classList.add("is-stale");
    return;
  }
  document.body.classList.remove("is-stale");
  if (!readiness) return;
  const problems = problemsOf(live ?? lastLive);
  place.dataset.level = !readiness.isReady ? "bad" : problems.length ? "warning" : "good";
  const lead = readiness.isReady ? "Degraded" : "Not ready";
  setText(place, problems.length ? `${lead}: ${problems.join("; ")}` : "Healthy");
}

function facts(live) {
  const policy = live.policy ?? {};
  const entries = [
    [`Revision ${policy.revision ?? "–"}${policy.current === false ? ", may be outdated" : ""}`, policy.current === false ? "warning" : ""],
    [plural(policy.rules ?? 0, "rule"), ""],
    [`${storeName(live.store)}: ${storeWords(live.store, { hasTime: true })}`, live.store?.state === "ok" ? "good" : "bad"],
    [plural(live.workers ?? 1, "worker"), ""],
  ];
  const list = $("facts");
  while (list.children.length > entries.length) list.lastChild.remove();
  entries.forEach(([label, kind], index) => {
    const item = list.children[index] ?? list.appendChild(element("li"));
    item.className = kind;
    setText(item, label);
  });
}

/** There is live data again; what is shown next is of that. */
export function endOutage() {
  outage = null;
}

export function showHealth(live) {
  lastLive = live;
  showState(live);
  facts(live);
  setText($("version"), `· Headgate ${live.version ?? ""} · Times in ${zone}`);
  const latency = live.latency;
  showPairs($("latency"), ["p50", "p90", "p99"].map((name) => [`${name.slice(1)} % within`, duration(latency?.[name])]));
  setText($("latency-note"), latency?.count ? `${plural(latency.count, "decision")} in the last minute` : "no decisions in the last minute");
  const store = live.store ?? {};
  const errors = Object.entries(store.errors ?? {}).filter(([, total]) => total);
  showPairs($("store"), [
    ["URL", store.url ?? "–"],
    ["State", storeWords(store, { hasTime: true }), store.state === "ok" ? "good" : "bad"],
    ...(store.calls === undefined || store.calls === null ? [] : [["Calls since start", count(store.calls)]]),
    ["Errors since start", errors.length ? errors.map(([reason, total]) => `${reason} ${count(total)}`).join(", ") : "none", errors.length ? "warning" : ""],
    ["Decisions without it", store.fail_mode ? "yes, now" : "no", store.fail_mode ? "bad" : ""],
    ...(live.factor < 1 ? [["Pressure", `adaptive limits at ${Math.round(100 * live.factor)} %`, "warning"]] : []),
  ]);
  queues.show((live.queues ?? []).map((one, index) => ({ ...one, id: `${one.gate}\u0000${index}` })));
  bounds.show((live.bounds ?? []).map((one, index) => ({ ...one, id: `${one.rule_id}\u0000${index}` })));
  boundsPart.hidden = !(live.bounds ?? []).length;
}
