// The table of rules with their current traffic: all of them in pages, on the overview the busiest.

import { $, Table, element, setText, textColumn } from "./dom.js";
import { Sparkline } from "./charts.js";
import { hrefOf, route, setQuery } from "./routes.js";
import { count, keyWords, limitWords, matchWords, rate, share } from "./words.js";

const NARROW = matchMedia("(max-width: 46rem)");
const pageRows = () => (NARROW.matches ? 10 : 20);
const overviewRows = () => (NARROW.matches ? 4 : 8);
const WITHOUT_STORE = new Set(["fail_open", "fail_closed", "fallback", "local"]);
let policy = new Map();
let order = [];
let lastLive = null;
let callbacks = { edit() {} };

const isShadow = (row) => row.mode === "shadow";

function showName(cell, row) {
  const [link, sub] = cell.children;
  setText(link, row.id);
  link.setAttribute("href", hrefOf("rules", row.id));
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

/** What decided recently, apart from the store; sources in place of it stand out while it is unavailable. */
export function showSources(cell, row) {
  const recent = Object.entries(row.sources_per_second ?? {}).filter(([, number]) => number > 0);
  const isOut = lastLive.store?.state !== "ok";
  const badges = recent.filter(([name]) => name !== "store").map(([name, number]) => [`${name} ${rate(number)}/s`, WITHOUT_STORE.has(name) ? (isOut ? "bad" : "warning") : ""]);
  if (!badges.length) badges.push([row.isLocal && !row.isCounted ? "Envoy" : recent.length ? "store" : "–", null]);
  const version = JSON.stringify(badges);
  if (cell.dataset.version === version) return;
  cell.dataset.version = version;
  cell.replaceChildren(...badges.map(([text, kind]) => (kind === null ? text : element("span", { class: `badge ${kind}`, text }))));
}

const figure = (name) => (row) => rate(row.per_second?.[name] ?? 0);

function shareOf(row) {
  const { allowed = 0, denied = 0, shadow_allowed = 0, shadow_denied = 0 } = row.per_second ?? {};
  const totalDenied = denied + shadow_denied;
  return share(totalDenied, totalDenied + allowed + shadow_allowed);
}

/** Rates, "in Envoy" where nothing is known of what a gateway decides by itself. */
const rateText = (row, number) => (row.isLocal && !row.isCounted ? "in Envoy" : rate(number));

const table = new Table("Rules and their traffic", [
  { head: "Rule", make: (cell) => cell.append(element("a", { class: "name" }), element("span", { class: "sub" })), show: showName },
  { head: "Mode", kind: "mode", make: (cell) => cell.append(element("span")), show: showMode },
  { head: "Limit", kind: "limit", show: showLimit },
  textColumn("Allowed/s", (row) => rateText(row, (row.per_second?.allowed ?? 0) + (row.per_second?.shadow_allowed ?? 0)), "number allowed"),
  { head: "Denied/s", kind: "number denied", show: (cell, row) => {
    setText(cell, rateText(row, row.per_second?.denied ?? 0));
    cell.classList.toggle("is-denied", (row.per_second?.denied ?? 0) > 0);
  } },
  { head: "Shadow-denied/s", kind: "number shadow", show: (cell, row) => setText(cell, isShadow(row) ? figure("shadow_denied")(row) : "") },
  textColumn("Share denied", shareOf, "number share"),
  { head: "2 minutes", kind: "curve", make: (cell) => { cell.spark = new Sparkline(); cell.append(cell.spark.element); },
    show: (cell, row) => cell.spark.show(row.series, lastLive.series?.end, isShadow(row) ? "shadow_denied" : "denied") },
  { head: "Decided by", kind: "sources", show: showSources },
  { head: "Edit", kind: "edit", make: (cell, row) => cell.append(element("button", { type: "button", "aria-label": `Edit ${row.id}`, text: "Edit", onclick: () => callbacks.edit(row.id) })),
    show: (cell, row) => { cell.firstChild.disabled = !row.rule; } },
], { empty: "No matching rules.", cards: true });

const previous = element("button", { type: "button", text: "Previous", onclick: () => setQuery({ page: String(pageNumber() - 1) }) });
const next = element("button", { type: "button", text: "Next", onclick: () => setQuery({ page: String(pageNumber() + 1) }) });
const place = element("span", { class: "note" });
const all = element("a", {});
const pager = element("div", { class: "line tight pager" }, previous, place, next, all);
const pageNumber = () => Math.max(1, Number(route().query.get("page")) || 1);

export function startRules(pageCallbacks) {
  callbacks = pageCallbacks;
  $("rules-table").append(table.element, pager);
  $("rules-filter").addEventListener("input", (event) => setQuery({ q: event.target.value.trim(), page: null }));
  $("rules-order").addEventListener("change", (event) => setQuery({ order: event.target.value, page: null }));
}

/** Show what the address asks for. */
export function showRulesRoute() {
  const { page, query } = route();
  if (page === "rules") {
    if ($("rules-filter").value.trim() !== (query.get("q") ?? "")) $("rules-filter").value = query.get("q") ?? "";
    $("rules-order").value = ["denied", "traffic"].includes(query.get("order")) ? query.get("order") : "policy";
  }
  setText($("rules-title"), page === "overview" ? "Busiest rules" : "Rules");
  for (const one of document.querySelectorAll("[data-all-rules]")) one.hidden = page === "overview";
  if (lastLive) showRules(lastLive);
}

/** The rules as written: a list of `{rule_id, version, rule}`. */
export function setPolicy(rules) {
  policy = new Map(rules.map((one) => [one.rule_id, one]));
  order = rules.map((one) => one.rule_id);
  if (lastLive) showRules(lastLive);
}

/** A rule as it is written; null if there is none. */
export const ruleOf = (id) => policy.get(id)?.rule ?? null;

/** All rules: what is written and what is counted of each. */
export function ruleRows(live = lastLive) {
  const liveRules = new Map((live?.rules ?? []).map((one) => [one.rule_id, one]));
  const ids = [...order, ...[...liveRules.keys()].filter((id) => !policy.has(id))];
  const series = live?.series?.rules ?? {};
  return ids.map((id) => {
    const rule = policy.get(id)?.rule;
    const counted = liveRules.get(id);
    return { mode: rule?.mode ?? (rule ? "enforce" : null), ...counted, id, rule, series: Object.hasOwn(series, id) ? series[id] : null,
      isLocal: rule?.decide === "local", isCounted: Object.keys(counted?.sources ?? {}).length > 0 };
  });
}

/** The rules that have *text* in them. */
export function matchingRules(text, rows = ruleRows()) {
  const query = text.trim().toLowerCase();
  return query ? rows.filter((row) => `${row.id} ${row.mode} ${JSON.stringify(row.rule ?? {})}`.toLowerCase().includes(query)) : rows;
}

const denials = (row) => (row.per_second?.denied ?? 0) + (row.per_second?.shadow_denied ?? 0);
const requests = (row) => Object.values(row.per_second ?? {}).reduce((sum, one) => sum + one, 0);

export function showRules(live) {
  lastLive = live;
  const { page } = route();
  if (page !== "overview" && page !== "rules") return;
  const isOverview = page === "overview";
  const rows = ruleRows(live);
  const matching = isOverview ? [...rows] : [...matchingRules($("rules-filter").value, rows)];
  const sortKey = { denied: denials, traffic: requests }[isOverview ? "traffic" : $("rules-order").value];
  if (sortKey) matching.sort((one, other) => sortKey(other) - sortKey(one));
  const size = isOverview ? overviewRows() : pageRows();
  const pages = Math.max(1, Math.ceil(matching.length / size));
  const number = isOverview ? 1 : Math.min(pageNumber(), pages);
  const first = (number - 1) * size;
  table.show(matching.slice(first, first + size));
  pager.hidden = pages === 1;
  previous.hidden = next.hidden = place.hidden = isOverview;
  previous.disabled = number === 1;
  next.disabled = number === pages;
  setText(place, `${count(first + 1)} to ${count(Math.min(first + size, matching.length))} of ${count(matching.length)}`);
  all.hidden = !isOverview;
  setText(all, `All ${count(rows.length)} rules`);
  all.setAttribute("href", hrefOf("rules"));
}
