// The table of rules, with their current traffic and a link to the editor.

import { $, Table, element, setText, textColumn } from "./dom.js";
import { Sparkline } from "./charts.js";
import { count, keyWords, limitWords, matchWords, rate, share } from "./words.js";

const MAX_ROWS = 100;
const WITHOUT_STORE = new Set(["fail_open", "fail_closed", "fallback", "local"]);
let policy = new Map();
let order = [];
let isExpanded = false;
let lastLive = null;
let callbacks = { choose() {}, edit() {}, chosen: () => "" };

const isShadow = (row) => row.mode === "shadow";

function makeName(cell, row) {
  const button = element("button", { type: "button", class: "name", onclick: () => callbacks.choose(callbacks.chosen() === row.id ? "" : row.id) });
  cell.append(button, element("span", { class: "sub" }));
}

function showName(cell, row) {
  const [button, sub] = cell.children;
  setText(button, row.id);
  button.setAttribute("aria-pressed", String(callbacks.chosen() === row.id));
  setText(sub, row.rule ? matchWords(row.rule.match) : row.mode ? "in force" : "no longer in the policy");
  cell.title = row.rule?.description ?? "";
}

function showMode(cell, row) {
  const mode = row.candidate_of ? "candidate" : row.mode ?? "gone";
  cell.firstChild.className = `badge mode-${mode}`;
  setText(cell.firstChild, mode);
}

function showLimit(cell, row) {
  const words = row.rule ? limitWords(row.rule) : "–";
  setText(cell, row.rule ? `${words}${/[,;]/.test(words) ? "," : ""} ${keyWords(row.rule.key_by)}` : words);
}

/** Show the sources of decisions other than the store; those in place of it are marked while the store is gone. */
function showSources(cell, row) {
  const others = Object.entries(row.sources ?? {}).filter(([name, total]) => total && name !== "store");
  const texts = others.map(([name, total]) => `${name} ${count(total)}`);
  const isOut = lastLive.store?.state !== "ok";
  const states = others.map(([name]) =>
    !WITHOUT_STORE.has(name) ? "" : isOut && (row.sources_per_second?.[name] ?? 0) > 0 ? "bad" : "warning");
  const version = JSON.stringify([texts, states]);
  if (cell.dataset.version === version) return;
  cell.dataset.version = version;
  cell.replaceChildren(...(others.length ? texts.map((one, index) =>
    element("span", { class: `badge ${states[index]}`, text: states[index] === "bad" ? `${one}, now` : one })) : ["store"]));
}

const figure = (name) => (row) => rate(row.per_second?.[name] ?? 0);

function shareOf(row) {
  const { allowed = 0, denied = 0, shadow_allowed = 0, shadow_denied = 0 } = row.per_second ?? {};
  const totalDenied = denied + shadow_denied;
  const text = share(totalDenied, totalDenied + allowed + shadow_allowed);
  return isShadow(row) && totalDenied ? `would be ${text}` : text;
}

const table = new Table("Rules and their traffic", [
  { head: "Rule", make: makeName, show: showName },
  { head: "Mode", make: (cell) => cell.append(element("span")), show: showMode },
  { head: "Limit", kind: "limit", show: showLimit },
  textColumn("Allowed/s", (row) => rate((row.per_second?.allowed ?? 0) + (row.per_second?.shadow_allowed ?? 0)), "number"),
  { head: "Denied/s", kind: "number", show: (cell, row) => {
    setText(cell, figure("denied")(row));
    cell.classList.toggle("is-denied", (row.per_second?.denied ?? 0) > 0);
  } },
  { head: "Shadow-denied/s", kind: "number", show: (cell, row) => setText(cell, figure("shadow_denied")(row)) },
  textColumn("Share denied", shareOf, "number"),
  { head: "2 minutes", kind: "curve", make: (cell) => { cell.spark = new Sparkline(); cell.append(cell.spark.element); },
    show: (cell, row) => cell.spark.show(row.series, lastLive.series?.end, isShadow(row) ? "shadow_denied" : "denied") },
  { head: "Decided by", kind: "sources", show: showSources },
  { head: "Edit", make: (cell, row) => cell.append(element("button", { type: "button", "aria-label": `Edit ${row.id}`, text: "Edit", onclick: () => callbacks.edit(row.id) })),
    show: (cell, row) => { cell.firstChild.disabled = !row.rule; } },
], { empty: "No matching rules.", cards: true, isLong: true });

const more = element("button", { type: "button", onclick: () => { isExpanded = true; showRules(lastLive); } });

export function startRules(pageCallbacks) {
  callbacks = pageCallbacks;
  $("rules-table").append(table.element, more);
  $("rules-filter").addEventListener("input", redraw);
  $("rules-order").addEventListener("change", redraw);
}

/** The rules as written: a list of `{rule_id, version, rule}`. */
export function setPolicy(rules) {
  policy = new Map(rules.map((one) => [one.rule_id, one]));
  order = rules.map((one) => one.rule_id);
  redraw();
}

/** A rule as it is written; null if there is none. */
export const ruleOf = (id) => policy.get(id)?.rule ?? null;

/** Show the same figures again, after another rule was chosen. */
export const redraw = () => { if (lastLive) showRules(lastLive); };

export function showRules(live) {
  lastLive = live;
  const liveRules = new Map((live.rules ?? []).map((one) => [one.rule_id, one]));
  const ids = [...order, ...[...liveRules.keys()].filter((id) => !policy.has(id))];
  const rows = ids.map((id) => {
    const series = live.series?.rules ?? {};
    const rule = policy.get(id)?.rule;
    return { mode: rule?.mode ?? (rule ? "enforce" : null), ...liveRules.get(id), id, rule, series: Object.hasOwn(series, id) ? series[id] : null,
      class: callbacks.chosen() === id ? "is-chosen" : "" };
  });
  const query = $("rules-filter").value.trim().toLowerCase();
  const matching = query ? rows.filter((row) => `${row.id} ${row.mode} ${JSON.stringify(row.rule ?? {})}`.toLowerCase().includes(query)) : rows;
  const sortKey = { denied: (row) => (row.per_second?.denied ?? 0) + (row.per_second?.shadow_denied ?? 0),
    traffic: (row) => Object.values(row.per_second ?? {}).reduce((sum, one) => sum + one, 0) }[$("rules-order").value];
  if (sortKey) matching.sort((one, other) => sortKey(other) - sortKey(one));
  const visible = isExpanded ? matching : matching.slice(0, MAX_ROWS);
  more.hidden = visible.length === matching.length;
  setText(more, `Show all ${count(matching.length)}`);
  table.show(visible);
}
