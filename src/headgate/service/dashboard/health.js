// The status line, latency, the store, queues and leases.

import { $, Table, codes, fill, made, pairs, say, text } from "./dom.js";
import { exact, zone } from "./clock.js";
import { count, lasting, plural } from "./words.js";

let readiness = null;
let gone = null;
let shownAt = null;

const queues = new Table("Queues", [
  codes("Gate", (row) => row.gate), text("Waiting", (row) => count(row.waiting), "number"),
  text("In flight", (row) => (row.slots ? `${count(row.in_flight)} of ${count(row.slots)}` : count(row.in_flight)), "number"),
  text("Wait", (row) => lasting(row.wait_seconds), "number"),
], { empty: "No rule has a queue here." });

const bounds = new Table("Leases", [
  codes("Rule", (row) => row.rule_id ?? ""), text("Overshoot at most", (row) => count(row.units), "number"),
  text("Nodes", (row) => count(row.holders), "number"),
]);
const boundsPart = made("div", { hidden: true }, made("h3", { text: "Leases" }),
  made("p", { class: "note", text: "Nodes lease units from the store in advance and decide with them locally. In the worst case, this many requests above the limit are allowed." }),
  bounds.element);

export function startHealth() {
  fill($("queues"), queues.element);
  fill($("bounds"), boundsPart);
}

export function setReadiness(told) {
  readiness = told;
  if (document.body.dataset.access !== "open") gone = null; // otherwise the next live data clears it
  showState(null);
}

export function setGone(told) {
  gone = told;
  showState(null);
}

/** The current problems, the worst first. */
function problemsOf(live) {
  const found = [...(readiness?.reasons ?? [])];
  if (!live) return found;
  found.push(...(live.store?.trouble ?? []));
  if (live.store?.state === "open" && !live.store.trouble?.length) found.push("store: circuit open");
  if (live.store?.fail_mode) found.push("rules apply their on_store_failure");
  if (live.policy?.trouble) found.push(`rules: ${live.policy.trouble}`);
  if (live.policy?.problems) found.push(`the newest policy has ${plural(live.policy.problems, "error")}; the previous one stays in force`);
  if (live.policy?.stale) found.push("the policy may be stale");
  if (live.factor < 1) found.push(`under pressure: adaptive limits are at ${Math.round(100 * live.factor)} % of their configured value`);
  return [...new Set(found)];
}

/** The line at the top. It is read out when it changes, so it has no figures that change each second. */
export function showState(live) {
  const place = $("state");
  if (gone) {
    place.dataset.level = "bad";
    const lead = gone.status ? "No data" : "No response";
    say(place, `${lead} since ${exact(gone.since)} (${gone.told}). Trying again${gone.pause >= 2 ? `, every ${Math.round(gone.pause)} s` : ""}.`);
    document.body.classList.add("is-stale");
    return;
  }
  document.body.classList.remove("is-stale");
  if (!readiness) return;
  const told = problemsOf(live ?? shownAt);
  place.dataset.level = !readiness.isReady ? "bad" : told.length ? "odd" : "good";
  const lead = readiness.isReady ? "Degraded" : "Not ready";
  say(place, told.length ? `${lead}: ${told.join("; ")}` : "Healthy");
}

function facts(live) {
  const policy = live.policy ?? {};
  const entries = [
    [`Revision ${policy.revision ?? "–"}${policy.current === false ? ", may be outdated" : ""}`, policy.current === false ? "odd" : ""],
    [plural(policy.rules ?? 0, "rule"), ""],
    [`Store ${{ ok: "ok", open: "circuit open" }[live.store?.state] ?? live.store?.state ?? "unknown"}`, live.store?.state === "ok" ? "good" : "bad"],
    [plural(live.workers ?? 1, "worker"), ""],
    ["Data of this node", ""],
  ];
  const list = $("facts");
  while (list.children.length > entries.length) list.lastChild.remove();
  entries.forEach(([said, kind], index) => {
    const item = list.children[index] ?? list.appendChild(made("li"));
    item.className = kind;
    say(item, said);
  });
}

export function showHealth(live) {
  shownAt = live;
  gone = null;
  showState(live);
  facts(live);
  say($("version"), `· Headgate ${live.version ?? ""} · Times in ${zone}`);
  const latency = live.latency;
  pairs($("latency"), ["p50", "p90", "p99"].map((name) => [`${name.slice(1)} % within`, lasting(latency?.[name])]));
  say($("latency-note"), latency?.count ? `${plural(latency.count, "decision")} in the last minute` : "no decisions in the last minute");
  const store = live.store ?? {};
  const errors = Object.entries(store.errors ?? {}).filter(([, total]) => total);
  pairs($("store"), [
    ["URL", store.url ?? "–"],
    ["State", { ok: "healthy", failing: "failing", open: "circuit open" }[store.state] ?? store.state ?? "–", store.state === "ok" ? "good" : "bad"],
    ...(store.calls === undefined || store.calls === null ? [] : [["Calls", count(store.calls)]]),
    ["Errors", errors.length ? errors.map(([reason, total]) => `${reason} ${count(total)}`).join(", ") : "none", errors.length ? "odd" : ""],
    ["Decided without the store", store.fail_mode ? "yes, now" : "no", store.fail_mode ? "bad" : ""],
    ...(live.factor < 1 ? [["Pressure", `adaptive limits at ${Math.round(100 * live.factor)} %`, "odd"]] : []),
  ]);
  queues.show((live.queues ?? []).map((one, index) => ({ ...one, id: `${one.gate}\u0000${index}` })));
  bounds.show((live.bounds ?? []).map((one, index) => ({ ...one, id: `${one.rule_id}\u0000${index}` })));
  boundsPart.hidden = !(live.bounds ?? []).length;
}
