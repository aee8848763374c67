// The header line, latency, the store, queues, and what was taken in advance.

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
], { empty: "No rule lets requests wait here." });

const bounds = new Table("Taken in advance", [
  codes("Rule", (row) => row.rule_id ?? ""), text("Over the limit by at most", (row) => count(row.units), "number"),
  text("Nodes", (row) => count(row.holders), "number"),
]);
const boundsPart = made("div", { hidden: true }, made("h3", { text: "Taken in advance" }),
  made("p", { class: "note", text: "To be quick, nodes take units out of the store beforehand and decide with them alone. If all were used at the worst moment, so many more than the limit would pass." }),
  bounds.element);

export function startHealth() {
  fill($("queues"), queues.element);
  fill($("bounds"), boundsPart);
}

export function setReadiness(told) {
  readiness = told;
  if (document.body.dataset.access !== "open") gone = null; // else only figures make up for it
  showState(null);
}

export function setGone(told) {
  gone = told;
  showState(null);
}

/** What is amiss, the worst first. */
function amiss(live) {
  const found = [...(readiness?.reasons ?? [])];
  if (!live) return found;
  found.push(...(live.store?.trouble ?? []));
  if (live.store?.state === "open" && !live.store.trouble?.length) found.push("the store is given a rest after errors");
  if (live.store?.fail_mode) found.push("rules decide without the store, each as its on_store_failure says");
  if (live.policy?.trouble) found.push(`rules: ${live.policy.trouble}`);
  if (live.policy?.problems) found.push(`the newest policy has ${plural(live.policy.problems, "error")}; the one before stays in force`);
  if (live.policy?.stale) found.push("the policy may be stale");
  if (live.factor < 1) found.push(`under pressure: limits that may be lowered (adaptive) are at ${Math.round(100 * live.factor)} % of what is written`);
  return [...new Set(found)];
}

/** The line at the top. It is read out when it changes, so it has no figures that change each second. */
export function showState(live) {
  const place = $("state");
  if (gone) {
    place.dataset.level = "bad";
    const lead = gone.status ? "No figures" : "No answer";
    say(place, `${lead} since ${exact(gone.since)} (${gone.told}). Trying again${gone.pause >= 2 ? `, every ${Math.round(gone.pause)} s` : ""}.`);
    document.body.classList.add("is-stale");
    return;
  }
  document.body.classList.remove("is-stale");
  if (!readiness) return;
  const told = amiss(live ?? shownAt);
  place.dataset.level = !readiness.isReady ? "bad" : told.length ? "odd" : "good";
  const lead = readiness.isReady ? "Ready" : "Not ready";
  say(place, told.length ? `${lead}${readiness.isReady ? ", but" : ""}: ${told.join("; ")}` : "Ready: decisions are made");
}

function facts(live) {
  const policy = live.policy ?? {};
  const entries = [
    [`Revision ${policy.revision ?? "–"}${policy.current === false ? ", perhaps not the newest" : ""}`, policy.current === false ? "odd" : ""],
    [plural(policy.rules ?? 0, "rule"), ""],
    [`Store ${{ ok: "ok", open: "given a rest" }[live.store?.state] ?? live.store?.state ?? "unknown"}`, live.store?.state === "ok" ? "good" : "bad"],
    [plural(live.workers ?? 1, "worker"), ""],
    ["Figures of this node", ""],
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
  say($("version"), `· Headgate ${live.version ?? ""} · Times are of ${zone}`);
  const latency = live.latency;
  pairs($("latency"), ["p50", "p90", "p99"].map((name) => [`${name.slice(1)} % within`, lasting(latency?.[name])]));
  say($("latency-note"), latency?.count ? `of ${plural(latency.count, "decision")} in the last minute` : "no decision in the last minute");
  const store = live.store ?? {};
  const errors = Object.entries(store.errors ?? {}).filter(([, total]) => total);
  pairs($("store"), [
    ["Where", store.url ?? "–"],
    ["State", { ok: "answers", failing: "failing", open: "given a rest after errors" }[store.state] ?? store.state ?? "–", store.state === "ok" ? "good" : "bad"],
    ...(store.calls === undefined || store.calls === null ? [] : [["Calls", count(store.calls)]]),
    ["Errors", errors.length ? errors.map(([reason, total]) => `${reason} ${count(total)}`).join(", ") : "none", errors.length ? "odd" : ""],
    ["Decided without it", store.fail_mode ? "yes, now" : "no", store.fail_mode ? "bad" : ""],
    ...(live.factor < 1 ? [["Pressure", `adaptive limits at ${Math.round(100 * live.factor)} %`, "odd"]] : []),
  ]);
  queues.show((live.queues ?? []).map((one, index) => ({ ...one, id: `${one.gate}\u0000${index}` })));
  bounds.show((live.bounds ?? []).map((one, index) => ({ ...one, id: `${one.rule_id}\u0000${index}` })));
  boundsPart.hidden = !(live.bounds ?? []).length;
}
