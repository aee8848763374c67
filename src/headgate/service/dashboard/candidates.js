// Candidate rules and the requests that they would have denied.

import { $, code, element, setChildren } from "./dom.js";
import { momentOf } from "./clock.js";
import { admin, changeHeaders } from "./api.js";
import { confirmAction, failure, previewDetails } from "./findings.js";
import { callerWord, count, plural } from "./words.js";

let callbacks = { edit() {}, reportChange() {}, lockButtons() {}, ruleOf: () => null };

export function startCandidates(pageCallbacks) { callbacks = pageCallbacks; }

/** " of 14 tenants"; empty for a rule with one counter for all. */
function callersOf(one) {
  const word = callerWord(callbacks.ruleOf(one.rule_id)?.key_by);
  return word ? ` of ${one.keys_exact === false ? "about " : ""}${plural(one.keys ?? 0, word)}` : "";
}

/** "`a-candidate` would have denied 312 requests of 14 tenants since yesterday 14:02; `a` allowed 300 of them." */
function sentence(one, period) {
  if (!one.requests) return [code(one.rule_id), ` has seen no requests ${period}.`];
  if (!one.would_deny) {
    return [code(one.rule_id), ` would have denied none of ${plural(one.requests ?? 0, "request")} ${period}`, ...newlyAllowed(one), "."];
  }
  const parts = [code(one.rule_id), ` would have denied ${plural(one.would_deny, "request")}${callersOf(one)} ${period}`];
  if (one.candidate_of && one.newly_denied !== null && one.newly_denied !== undefined) {
    parts.push("; ", code(one.candidate_of), ` allowed ${partOf(one.newly_denied, one.would_deny)}`);
  }
  return [...parts, ...deniedAnyway(one), ...newlyAllowed(one), "."];
}

/** Requests that other rules denied anyway, if there are more than the live rule denied. */
function deniedAnyway(one) {
  const isMore = one.denied_anyway > one.would_deny - (one.newly_denied ?? one.would_deny);
  return isMore ? [`; rules in force denied ${partOf(one.denied_anyway, one.would_deny)} anyway`] : [];
}

function partOf(part, whole) {
  if (part === whole) return whole === 1 ? "it" : "all of them";
  return part === 1 ? "one of them" : part ? `${count(part)} of them` : "none of them";
}

function newlyAllowed(one) {
  if (!one.candidate_of || !one.newly_allowed) return [];
  return [`; it would have allowed ${plural(one.newly_allowed, "request")} that `, code(one.candidate_of), " denied"];
}

const versionOf = async (id) => (await admin("GET", `/rules/${encodeURIComponent(id)}`)).data.version;

/** Adopt the candidate as previewed: if either rule changes in the meantime, the change is rejected. */
async function adopt(one) {
  const path = `/rules/${encodeURIComponent(one.candidate_of)}/adopt`;
  let preview;
  let version;
  try {
    version = Math.max(...await Promise.all([one.rule_id, one.candidate_of].map(versionOf)));
    preview = previewDetails((await admin("POST", `${path}:preview`, { body: {} })).data);
  } catch (error) { preview = failure(error); }
  confirmAction({
    title: `Adopt ${one.rule_id}?`,
    content: [element("p", {}, "The candidate replaces ", code(one.candidate_of), " in one revision. Counters keep their values."), preview],
    label: "Adopt",
    action: async (reason) => {
      await admin("POST", path, { body: {}, headers: changeHeaders({ version, reason }) });
      callbacks.reportChange(`${one.rule_id} has replaced ${one.candidate_of}`);
    },
  });
}

function discard(one) {
  confirmAction({
    title: `Discard ${one.rule_id}?`,
    content: element("p", { text: "The candidate and its counts are removed. The live rule does not change." }),
    label: "Discard", isDanger: true,
    action: async (reason) => {
      await admin("DELETE", `/rules/${encodeURIComponent(one.rule_id)}`, { headers: changeHeaders({ reason }) });
      callbacks.reportChange(`${one.rule_id} is discarded`);
    },
  });
}

const cards = new Map();
const none = element("p", { class: "note", text: "No candidates. “Try as candidate” in the editor of a rule counts what a change would deny, without denying it." });

/** The card of a candidate. Its buttons are kept on updates, and with them the focus. */
function createCard(one) {
  const buttons = one.candidate_of ? [
    element("button", { type: "button", "data-writes": true, "aria-label": `Adopt ${one.rule_id}`, text: "Adopt", onclick: () => adopt(one) }),
    element("button", { type: "button", class: "danger", "data-writes": true, "aria-label": `Discard ${one.rule_id}`, text: "Discard", onclick: () => discard(one) }),
  ] : [];
  buttons.push(element("button", { type: "button", "aria-label": `Edit ${one.rule_id}`, text: "Edit", onclick: () => callbacks.edit(one.rule_id) }));
  const words = element("div");
  return { words, version: "", element: element("div", { class: "candidate" }, words, element("div", { class: "line tight" }, ...buttons)) };
}

function updateCard(card, one, at) {
  const day = one.last_day;
  const isOld = day && at - one.since > 86_400;
  const version = JSON.stringify([one, Math.floor(at / 3600), callersOf(one)]);
  if (card.version === version) return;
  card.version = version;
  setChildren(card.words, element("p", {}, ...sentence(one, `since ${momentOf(one.since)}`)),
    isOld ? element("p", { class: "note" }, ...sentence({ ...day, rule_id: one.rule_id, candidate_of: one.candidate_of }, "in the last 24 hours")) : null);
}

export function showCandidates(live) {
  const place = $("candidate-list");
  const candidates = [...(live.candidates ?? [])].sort((one, other) => Boolean(other.candidate_of) - Boolean(one.candidate_of));
  const names = candidates.map((one) => `${one.rule_id}\u0000${one.candidate_of ?? ""}`);
  const isSame = names.length === cards.size && names.every((name) => cards.has(name));
  for (const name of [...cards.keys()]) if (!names.includes(name)) cards.delete(name);
  candidates.forEach((one, index) => {
    if (!cards.has(names[index])) cards.set(names[index], createCard(one));
    updateCard(cards.get(names[index]), one, live.at);
  });
  if (isSame && place.hasChildNodes()) return;
  setChildren(place, ...(candidates.length ? names.map((name) => cards.get(name).element) : [none]));
  callbacks.lockButtons();
}
