// Callers: the form that finds one, and the page of one with its limits, its traffic, and block, grant, reset.

import { $, Table, code, copyText, element, shortKey, scrollable, setChildren, setText, textColumn } from "./dom.js";
import { moment } from "./clock.js";
import { admin, changeHeaders, request } from "./api.js";
import { confirmAction, failure } from "./findings.js";
import { hrefOf, openPage, route } from "./routes.js";
import { ruleOf, ruleRows } from "./rules.js";
import { count, duration, rate } from "./words.js";

const REFRESH_MS = 3_000;
const OF_REQUESTS = new Set(["global", "endpoint", "method", "host"]);
const PUBLIC_FIELDS = [["api_key", "API key"], ["user_id", "User"], ["ip", "Address"]];
const PUBLIC_HEADERS = { api_key: "x-api-key", user_id: "x-user-id" };
const PERIODS = [["900", "15 minutes"], ["3600", "1 hour"], ["86400", "1 day"], ["604800", "1 week"]];
let callbacks = { reportChange() {}, lockButtons() {} };
let loaded = null; // the key and the time of the last answer
let isLoading = false;

const isOpen = () => document.body.dataset.access === "open";

// ---- the form

/** The parts of identities that rules count by. */
export function partsOfRules() {
  const names = ruleRows().flatMap((row) => [row.rule?.key_by].flat()).filter((name) => typeof name === "string" && !OF_REQUESTS.has(name) && !name.includes(":"));
  return [...new Set(["ip", ...names])].sort((one, other) => (one === "ip") - (other === "ip") || one.localeCompare(other));
}

/** Show a field for each part that a caller can be found by. */
export function showCallerFields() {
  const fields = isOpen() ? partsOfRules().map((name) => [name, name === "ip" ? "Address" : name]) : PUBLIC_FIELDS;
  const version = JSON.stringify(fields);
  const place = $("caller-fields");
  if (place.dataset.version === version) return;
  place.dataset.version = version;
  setChildren(place, ...fields.map(([name, label]) => element("label", { for: `caller-${name}` }, `${label} `,
    element("input", { id: `caller-${name}`, name, spellcheck: "false", autocomplete: "off", placeholder: name === "ip" ? "203.0.113.7" : "" }))));
}

/** Find the caller with the parts *identity*, and open its page; a secret never gets into its address. */
export async function findCaller(identity) {
  const { data } = await admin("POST", "/callers:lookup", { body: { identity } });
  const own = data.counters.filter((one) => !one.is_shared);
  const names = Object.keys(identity);
  const found = own.find((one) => names.length === 1 && one.key.startsWith(`${names[0]}=`) && !one.key.includes("&")) ?? own[0];
  if (!found) throw Object.assign(new Error("no rule counts this caller by itself"), { name: "ProblemError" });
  openPage("callers", found.key);
}

function limitRow(limit) {
  const meter = element("meter", { min: 0, max: limit.quota, value: limit.remaining, "aria-label": `${count(limit.remaining)} of ${count(limit.quota)} left` });
  const where = `${(limit.methods ?? []).join(" ")} ${(limit.endpoints ?? ["everywhere"]).join(" ")}`.trim();
  return element("tr", {}, element("th", { scope: "row" }, code(limit.name)),
    element("td", { text: `${count(limit.remaining)} of ${count(limit.quota)}` }), element("td", {}, meter), element("td", {}, code(where)), element("td", { text: limit.limit }));
}

/** What a caller has left, as everybody may see it. */
async function showPublicLimits(identity) {
  const headers = Object.fromEntries(Object.entries(identity).filter(([name]) => name !== "ip").map(([name, value]) => [PUBLIC_HEADERS[name], value]));
  const { limits } = (await request("POST", "v1/rate_limit", { body: { path: "/", ip: identity.ip ?? "127.0.0.1", headers } })).data;
  if (!limits.length) return setChildren($("limits"), element("p", { text: "No limit applies to this caller." }));
  const heads = ["Rule", "Left", "", "For", "Limit"].map((head) => (head ? element("th", { scope: "col", text: head }) : element("td")));
  return setChildren($("limits"), scrollable("What this caller has left",
    element("table", {}, element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...limits.map(limitRow)))));
}

async function submit(event) {
  event.preventDefault();
  const identity = Object.fromEntries([...new FormData($("caller-form"))].map(([name, value]) => [name, value.trim()]).filter(([, value]) => value));
  setChildren($("limits"));
  try {
    if (!isOpen()) await showPublicLimits(identity);
    else if (Object.keys(identity).length) await findCaller(identity);
    else setChildren($("limits"), element("p", { class: "bad", text: "Fill in at least one field." }));
  } catch (error) { setChildren($("limits"), failure(error)); }
}

// ---- the page of a caller

function showLeft(cell, row) {
  const [text, meter] = cell.children;
  const [limit] = row.limits.filter((one) => one.refused).concat([...row.limits].sort((one, other) => one.remaining / one.quota - other.remaining / other.quota));
  setText(text, row.limits.map((one) => `${count(one.remaining)} of ${count(one.quota)}${one.refused && one.retry_after ? `, retry in ${duration(Math.ceil(one.retry_after))}` : ""}`).join("; "));
  Object.assign(meter, { max: limit?.quota ?? 1, value: limit?.remaining ?? 0 });
  meter.setAttribute("aria-label", `${count(limit?.remaining)} of ${count(limit?.quota)} left`);
}

function showState(cell, row) {
  const badge = row.blocked_until ? [`blocked until ${moment(new Date(row.blocked_until))}`, "bad"]
    : row.extra ? [`${count(row.extra)} more until ${moment(new Date(row.until))}`, "good"]
    : row.is_shared ? ["shared by all callers", ""]
    : ruleOf(row.rule_id)?.decide === "local" ? ["behind a gateway, Envoy counts it", ""] : null;
  const version = JSON.stringify(badge);
  if (cell.dataset.version === version) return;
  cell.dataset.version = version;
  cell.replaceChildren(badge ? element("span", { class: `badge ${badge[1]}`, text: badge[0] }) : "–");
}

function makeActions(cell, row) {
  const button = (text, action) => element("button", { type: "button", "data-writes": true, "aria-label": `${text} ${row.rule_id}`, text, onclick: () => action(cell.row) });
  cell.append(element("div", { class: "line tight" }, button("Block", block), button("Grant", grant), button("Reset", reset), button("End", end)));
}

function showActions(cell, row) {
  cell.row = row;
  const hasOverride = Boolean(row.blocked_until || row.extra);
  const [blocking, granting, resetting, ending] = cell.firstChild.children;
  for (const one of [blocking, granting]) one.hidden = row.is_shared || hasOverride;
  resetting.hidden = row.is_shared;
  ending.hidden = !hasOverride;
  setText(ending, row.blocked_until ? "End block" : "End grant");
  ending.setAttribute("aria-label", `${ending.textContent} ${row.rule_id}`);
}

const table = new Table("Limits of this caller", [
  { head: "Rule", make: (cell) => cell.append(element("a", { class: "name" }), element("span", { class: "sub" })), show: (cell, row) => {
    setText(cell.firstChild, row.rule_id);
    cell.firstChild.setAttribute("href", hrefOf("rules", row.rule_id));
    setText(cell.lastChild, row.mode === "enforce" ? "" : row.mode);
  } },
  textColumn("Limit", (row) => row.limits.map((one) => one.limit).join("; "), "limit"),
  { head: "Remaining", kind: "left", make: (cell) => cell.append(element("span"), element("meter", { min: 0 })), show: showLeft },
  textColumn("Requests/s", (row) => rate(row.per_second), "number requests"),
  { head: "Denied/s", kind: "number denials", show: (cell, row) => {
    setText(cell, rate(row.denied_per_second));
    cell.classList.toggle("is-denied", row.denied_per_second > 0);
  } },
  { head: "State", kind: "override", show: showState },
  { head: "Actions", kind: "actions", make: makeActions, show: showActions },
], { empty: "No rule counts this caller.", cards: true });

export function startCaller(pageCallbacks) {
  callbacks = pageCallbacks;
  $("caller-form").addEventListener("submit", submit);
  setChildren($("caller-limits"), table.element);
  $("caller-copy").addEventListener("click", (event) => copyText(route().name, event.target));
  $("caller-link").addEventListener("click", (event) => copyText(location.href, event.target));
}

/** Show the caller whose page is open; *isChanged*: read it again at once. */
export async function showCaller({ isChanged = false } = {}) {
  const { page, name } = route();
  if (page !== "caller" || isLoading || !isOpen()) return;
  setText($("caller-title"), shortKey(name));
  $("caller-title").title = name;
  const now = performance.now();
  const isSame = loaded?.name === name;
  if (isSame && !isChanged && now - loaded.at < REFRESH_MS) return;
  if (!isSame) table.show([]);
  isLoading = true;
  try {
    const { data } = await admin("POST", "/callers:lookup", { body: { key: name } });
    loaded = { name, at: now };
    setChildren($("caller-error"));
    table.element.hidden = false;
    table.show(data.counters.map((one) => ({ ...one, id: one.rule_id })));
    $("caller-more").hidden = !data.more;
    callbacks.lockButtons();
  } catch (error) {
    loaded = { name, at: now };
    table.element.hidden = true;
    setChildren($("caller-error"), failure(error));
  } finally { isLoading = false; }
  if (route().name !== name) showCaller();
}

// ---- changes

const subject = (row) => element("p", {}, "Caller ", code(shortKey(row.key)), " under the rule ", code(row.rule_id), ".");
const period = () => element("label", { for: "period" }, "For ", element("select", { id: "period" }, ...PERIODS.map(([value, text]) => element("option", { value, text }))));

async function change(row, path, body, reason, done) {
  await admin("POST", `/keys:${path}`, { body: { rule: row.rule_id, key: row.key, ...body }, headers: changeHeaders({ reason }) });
  callbacks.reportChange(done);
  showCaller({ isChanged: true });
}

function block(row) {
  const select = period();
  confirmAction({ title: "Block this caller?", label: "Block", isDanger: true, content: [subject(row), select],
    action: (reason) => change(row, "block", { ttl: Number(select.lastChild.value) }, reason, `the caller is blocked under ${row.rule_id}`) });
}

function grant(row) {
  const select = period();
  const extra = element("input", { id: "extra", type: "number", min: 1, value: row.limits[0]?.quota ?? 100, required: true });
  confirmAction({ title: "Grant this caller more?", label: "Grant",
    content: [subject(row), element("label", { for: "extra" }, "More units, added to each limit ", extra), select],
    action: (reason) => change(row, "grant", { extra: Number(extra.value), ttl: Number(select.lastChild.value) }, reason, `the caller has ${extra.value} more under ${row.rule_id}`) });
}

function reset(row) {
  confirmAction({ title: "Reset this counter?", label: "Reset", content: [subject(row), element("p", { text: "The caller has its whole limit again." })],
    action: (reason) => change(row, "reset", {}, reason, `the counter is reset under ${row.rule_id}`) });
}

function end(row) {
  const what = row.blocked_until ? "block" : "grant";
  const query = new URLSearchParams({ rule: row.rule_id, key: row.key });
  confirmAction({ title: `End this ${what}?`, label: `End ${what}`, content: subject(row),
    action: async (reason) => {
      await admin("DELETE", `/overrides?${query}`, { headers: changeHeaders({ reason }) });
      callbacks.reportChange(`the ${what} has ended under ${row.rule_id}`);
      showCaller({ isChanged: true });
    } });
}
