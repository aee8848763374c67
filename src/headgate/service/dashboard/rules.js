// The table of rules, with their current traffic and a link to the editor.

import { $, Table, made, say, text } from "./dom.js";
import { Sparkline } from "./charts.js";
import { Growing } from "./pace.js";
import { count, keyWords, limitWords, matchWords, rate, share } from "./words.js";

const MOST_SHOWN = 100;
const WITHOUT_STORE = new Set(["fail_open", "fail_closed", "fallback", "local"]);
const growing = new Growing(30);
let policy = new Map();
let order = [];
let isAll = false;
let last = null;
let acts = { choose() {}, edit() {}, chosen: () => "" };

const isShadow = (row) => row.mode === "shadow";

function makeName(cell, row) {
  const button = made("button", { type: "button", class: "name", onclick: () => acts.choose(acts.chosen() === row.id ? "" : row.id) });
  cell.append(button, made("span", { class: "sub" }));
}

function showName(cell, row) {
  const [button, sub] = cell.children;
  say(button, row.id);
  button.setAttribute("aria-pressed", String(acts.chosen() === row.id));
  say(sub, row.rule ? matchWords(row.rule.match) : row.mode ? "in force" : "no longer in the policy");
  cell.title = row.rule?.description ?? "";
}

function showMode(cell, row) {
  const mode = row.candidate_of ? "candidate" : row.mode ?? "gone";
  cell.firstChild.className = `badge mode-${mode}`;
  say(cell.firstChild, mode);
}

function showLimit(cell, row) {
  const words = row.rule ? limitWords(row.rule) : "–";
  say(cell, row.rule ? `${words}${/[,;]/.test(words) ? "," : ""} ${keyWords(row.rule.key_by)}` : words);
}

/** The sources of decisions other than the store; fail_open stands out. */
function showSources(cell, row) {
  const found = Object.entries(row.sources ?? {}).filter(([name, total]) => total && name !== "store");
  const texts = found.map(([name, total]) => `${name} ${count(total)}`);
  const states = found.map(([name, total]) =>
    !WITHOUT_STORE.has(name) ? "" : growing.is(`${row.id}\u0000${name}`, last.at, total) ? "bad" : "odd");
  const wanted = JSON.stringify([texts, states]);
  if (cell.dataset.shown === wanted) return;
  cell.dataset.shown = wanted;
  cell.replaceChildren(...(found.length ? texts.map((one, index) =>
    made("span", { class: `badge ${states[index]}`, text: states[index] === "bad" ? `${one}, now` : one })) : ["store"]));
}

const figure = (name) => (row) => rate(row.per_second?.[name] ?? 0);

function shareOf(row) {
  const { allowed = 0, denied = 0, shadow_allowed = 0, shadow_denied = 0 } = row.per_second ?? {};
  const refused = denied + shadow_denied;
  const said = share(refused, refused + allowed + shadow_allowed);
  return isShadow(row) && refused ? `would be ${said}` : said;
}

const table = new Table("Rules and their traffic", [
  { head: "Rule", make: makeName, show: showName },
  { head: "Mode", make: (cell) => cell.append(made("span")), show: showMode },
  { head: "Limit", kind: "limit", show: showLimit },
  { ...text("Allowed/s", (row) => rate((row.per_second?.allowed ?? 0) + (row.per_second?.shadow_allowed ?? 0)), "number") },
  { head: "Denied/s", kind: "number", show: (cell, row) => {
    say(cell, figure("denied")(row));
    cell.classList.toggle("is-denied", (row.per_second?.denied ?? 0) > 0);
  } },
  { head: "Shadow-denied/s", kind: "number", show: (cell, row) => say(cell, figure("shadow_denied")(row)) },
  text("Share denied", shareOf, "number"),
  { head: "2 minutes", kind: "curve", make: (cell) => { cell.spark = new Sparkline(); cell.append(cell.spark.element); },
    show: (cell, row) => cell.spark.show(row.series, last.series?.end, isShadow(row) ? "shadow_denied" : "denied") },
  { head: "Decided by", kind: "sources", show: showSources },
  { head: "Edit", make: (cell, row) => cell.append(made("button", { type: "button", "aria-label": `Edit ${row.id}`, text: "Edit", onclick: () => acts.edit(row.id) })),
    show: (cell, row) => { cell.firstChild.disabled = !row.rule; } },
], { empty: "No matching rules.", cards: true, isLong: true });

const more = made("button", { type: "button", onclick: () => { isAll = true; showRules(last); } });

export function startRules(given) {
  acts = given;
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

/** The same figures again, after another rule was chosen. */
export const redraw = () => { if (last) showRules(last); };

export function showRules(live) {
  last = live;
  const known = new Map((live.rules ?? []).map((one) => [one.rule_id, one]));
  const ids = [...order, ...[...known.keys()].filter((id) => !policy.has(id))];
  const rows = ids.map((id) => {
    const series = live.series?.rules ?? {};
    const rule = policy.get(id)?.rule;
    return { mode: rule?.mode ?? (rule ? "enforce" : null), ...known.get(id), id, rule, series: Object.hasOwn(series, id) ? series[id] : null,
      class: acts.chosen() === id ? "is-chosen" : "" };
  });
  const wanted = $("rules-filter").value.trim().toLowerCase();
  const fitting = wanted ? rows.filter((row) => `${row.id} ${row.mode} ${JSON.stringify(row.rule ?? {})}`.toLowerCase().includes(wanted)) : rows;
  const by = { denied: (row) => (row.per_second?.denied ?? 0) + (row.per_second?.shadow_denied ?? 0),
    traffic: (row) => Object.values(row.per_second ?? {}).reduce((sum, one) => sum + one, 0) }[$("rules-order").value];
  if (by) fitting.sort((one, other) => by(other) - by(one));
  const shown = isAll ? fitting : fitting.slice(0, MOST_SHOWN);
  more.hidden = shown.length === fitting.length;
  say(more, `Show all ${count(fitting.length)}`);
  table.show(shown);
}
