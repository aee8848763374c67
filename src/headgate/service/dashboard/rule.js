// The page of a rule: what it says, its history, and what can be done with it.

import { $, Table, copyText, element, setChildren, setText, showPairs, textColumn } from "./dom.js";
import { moment } from "./clock.js";
import { admin } from "./api.js";
import { failure } from "./findings.js";
import { showRevision } from "./history.js";
import { route } from "./routes.js";
import { ruleRows, showSources } from "./rules.js";
import { count, keyWords, limitWords, matchWords } from "./words.js";

const MAX_REVISIONS = 20;
const OUTAGE_WORDS = { fail_open: "allow requests", fail_closed: "deny requests", local: "count in each process" };
const DECIDE_WORDS = { local: "in each Envoy, by its own counters", quota: "in Envoy, by shares that the service assigns" };
let callbacks = { edit() {}, switchRule() {} };
let loadedHistory = null; // rule and revision

const history = new Table("History of the rule", [
  textColumn("Revision", (row) => row.revision), textColumn("When", (row) => moment(new Date(row.time))),
  textColumn("Who", (row) => row.author, "key"), textColumn("What", (row) => (row.note ? `${row.what} – ${row.note}` : row.what), "what"),
  { head: "Changes", make: (cell, row) => cell.append(element("button", { type: "button", "aria-label": `Show the changes of revision ${row.revision}`, text: "Show", onclick: () => showRevision(row) })), show() {} },
], { empty: "The history of this rule is not kept.", cards: true });
const sources = element("span");

export function startRule(pageCallbacks) {
  callbacks = pageCallbacks;
  setChildren($("rule-history"), history.element, element("div", { id: "rule-history-error" }));
  $("rule-edit").addEventListener("click", () => callbacks.edit(route().name));
  $("rule-switch").addEventListener("click", () => callbacks.switchRule(route().name));
  $("rule-link").addEventListener("click", (event) => copyText(location.href, event.target));
}

/** Show the rule whose page is open, with the figures of *live*. */
export function showRule(live) {
  const { page, name } = route();
  if (page !== "rule") return;
  setText($("rule-title"), name);
  const row = ruleRows(live).find((one) => one.id === name);
  const rule = row?.rule;
  $("rule-unknown").hidden = Boolean(row);
  setText($("rule-unknown"), `There is no rule ${name} in the policy in force.`);
  const mode = row?.candidate_of ? "candidate" : row?.mode ?? "gone";
  $("rule-mode").className = `badge mode-${mode}`;
  setText($("rule-mode"), mode);
  for (const id of ["rule-edit", "rule-switch"]) $(id).hidden = !rule;
  setText($("rule-switch"), mode === "off" ? "Switch on" : "Switch off");
  setText($("rule-description"), rule?.description ?? "");
  if (!row) return setChildren($("rule-facts"));
  const total = Object.entries(row.sources ?? {}).filter(([, number]) => number).map(([source, number]) => `${source} ${count(number)}`);
  showPairs($("rule-facts"), [
    ["Limit", rule ? limitWords(rule) : "–"],
    ["Counted", rule ? keyWords(rule.key_by) : "–"],
    ["Matches", rule ? matchWords(rule.match) : "–"],
    ["Decided", DECIDE_WORDS[rule?.decide] ?? "by the service"],
    ["Store unavailable", rule?.on_store_failure ? OUTAGE_WORDS[rule.on_store_failure] ?? String(rule.on_store_failure) : "as by default"],
    ["Decided by, 10 s", ""],
    ["Decided by, since start", total.join(", ") || "no decisions"],
    ...(row.candidate_of ? [["Candidate of", row.candidate_of]] : []),
  ]);
  const box = $("rule-facts").boxes.get("Decided by, 10 s").lastChild;
  if (!box.contains(sources)) setChildren(box, sources);
  showSources(sources, row);
  const version = JSON.stringify([name, live?.policy?.revision, live?.began]);
  if (version !== loadedHistory) loadHistory(name, version);
}

async function loadHistory(name, version) {
  if (loadedHistory?.startsWith(JSON.stringify([name]).slice(0, -1)) !== true) history.show([]);
  loadedHistory = version;
  try {
    const { data } = await admin("GET", `/history?limit=${MAX_REVISIONS}&rule=${encodeURIComponent(name)}`);
    if (route().name !== name) return;
    setChildren($("rule-history-error"));
    history.show(data.revisions.map((one) => ({ ...one, id: one.revision })));
  } catch (error) { setChildren($("rule-history-error"), failure(error)); }
}
