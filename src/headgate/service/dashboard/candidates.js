// Candidate rules and the requests that they would have denied.

import { $, code, element, setChildren } from "./dom.js";
import { momentOf } from "./clock.js";
import { admin, changeHeaders } from "./api.js";
import { confirmAction, failure, previewDetails } from "./findings.js";
import { callerWord, count, plural } from "./words.js";

let callbacks = { edit() {}, reportChange() {}, lockButtons() {}, ruleOf: () => null };

export function startCandidates(pageCallbacks) { callbacks = pageCallbacks; }

/** " of 14 tenants"; empty for a rule with one counter for all. */
function callersOf(candidate) {
  const word = callerWord(callbacks.ruleOf(candidate.rule_id)?.key_by);
  return word ? ` of ${candidate.keys_exact === false ? "about " : ""}${plural(candidate.keys ?? 0, word)}` : "";
}

/** "`a-candidate` would have denied 312 requests of 14 tenants since yesterday 14:02; `a` allowed 300 of them." */
function sentence(candidate, period) {
  if (!candidate.requests) return [code(candidate.rule_id), ` has seen no requests ${period}.`];
  if (!candidate.would_deny) {
    return [code(candidate.rule_id), ` would have denied none of ${plural(candidate.requests ?? 0, "request")} ${period}`, ...newlyAllowed(candidate), "."];
  }
  const parts = [code(candidate.rule_id), ` would have denied ${plural(candidate.would_deny, "request")}${callersOf(candidate)} ${period}`];
  if (candidate.candidate_of && candidate.newly_denied !== null && candidate.newly_denied !== undefined) {
    parts.push("; ", code(candidate.candidate_of), ` allowed ${partOf(candidate.newly_denied, candidate.would_deny)}`);
  }
  return [...parts, ...deniedAnyway(candidate), ...newlyAllowed(candidate), "."];
}

/** Requests that other rules denied anyway, if there are more than the live rule denied. */
function deniedAnyway(candidate) {
  const isMore = candidate.denied_anyway > candidate.would_deny - (candidate.newly_denied ?? candidate.would_deny);
  return isMore ? [`; rules in force denied ${partOf(candidate.denied_anyway, candidate.would_deny)} anyway`] : [];
}

function partOf(part, whole) {
  if (part === whole) return whole === 1 ? "it" : "all of them";
  return part === 1 ? "one of them" : part ? `${count(part)} of them` : "none of them";
}

function newlyAllowed(candidate) {
  if (!candidate.candidate_of || !candidate.newly_allowed) return [];
  return [`; it would have allowed ${plural(candidate.newly_allowed, "request")} that `, code(candidate.candidate_of), " denied"];
}

const versionOf = async (id) => (await admin("GET", `/rules/${encodeURIComponent(id)}`)).data.version;

/** Adopt the candidate as previewed: if either rule changes in the meantime, the change is rejected. */
async function adopt(candidate) {
  const path = `/rules/${encodeURIComponent(candidate.candidate_of)}/adopt`;
  let preview;
  let version;
  try {
    version = Math.max(...await Promise.all([candidate.rule_id, candidate.candidate_of].map(versionOf)));
    preview = previewDetails((await admin("POST", `${path}:preview`, { body: {} })).data);
  } catch (error) { preview = failure(error); }
  confirmAction({
    title: `Adopt ${candidate.rule_id}?`,
    content: [element("p", {}, "The candidate replaces ", code(candidate.candidate_of), " in one revision. Counters keep their values."), preview],
    label: "Adopt",
    action: async (reason) => {
      await admin("POST", path, { body: {}, headers: changeHeaders({ version, reason }) });
      callbacks.reportChange(`${candidate.rule_id} has replaced ${candidate.candidate_of}`);
    },
  });
}

function discard(candidate) {
  confirmAction({
    title: `Discard ${candidate.rule_id}?`,
    content: element("p", { text: "The candidate and its counts are removed. The live rule does not change." }),
    label: "Discard", isDanger: true,
    action: async (reason) => {
      await admin("DELETE", `/rules/${encodeURIComponent(candidate.rule_id)}`, { headers: changeHeaders({ reason }) });
      callbacks.reportChange(`${candidate.rule_id} is discarded`);
    },
  });
}

const cards = new Map();
const none = element("p", { class: "note", text: "No shadow rules. “Try as candidate” in the editor of a rule counts what a change would deny, without denying it." });

/** The card of a candidate. Its buttons are kept on updates, and with them the focus. */
function createCard(candidate) {
  const buttons = candidate.candidate_of ? [
    element("button", { type: "button", "data-writes": true, "aria-label": `Adopt ${candidate.rule_id}`, text: "Adopt", onclick: () => adopt(candidate) }),
    element("button", { type: "button", class: "danger", "data-writes": true, "aria-label": `Discard ${candidate.rule_id}`, text: "Discard", onclick: () => discard(candidate) }),
  ] : [];
  buttons.push(element("button", { type: "button", "aria-label": `Edit ${candidate.rule_id}`, text: "Edit", onclick: () => callbacks.edit(candidate.rule_id) }));
  const words = element("div");
  return { words, version: "", element: element("div", { class: "candidate" }, words, element("div", { class: "line tight" }, ...buttons)) };
}

function updateCard(card, candidate, at) {
  const day = candidate.last_day;
  const isOld = day && at - candidate.since > 86_400;
  const version = JSON.stringify([candidate, Math.floor(at / 3600), callersOf(candidate)]);
  if (card.version === version) return;
  card.version = version;
  setChildren(card.words, element("p", {}, ...sentence(candidate, `since ${momentOf(candidate.since)}`)),
    isOld ? element("p", { class: "note" }, ...sentence({ ...day, rule_id: candidate.rule_id, candidate_of: candidate.candidate_of }, "in the last 24 hours")) : null);
}

export function showCandidates(live) {
  const place = $("candidate-list");
  const candidates = [...(live.candidates ?? [])].sort((candidate, other) => Boolean(other.candidate_of) - Boolean(candidate.candidate_of));
  const names = candidates.map((candidate) => `${candidate.rule_id}\u0000${candidate.candidate_of ?? ""}`);
  const isSame = names.length === cards.size && names.every((name) => cards.has(name));
  for (const name of [...cards.keys()]) if (!names.includes(name)) cards.delete(name);
  candidates.forEach((candidate, index) => {
    if (!cards.has(names[index])) cards.set(names[index], createCard(candidate));
    updateCard(cards.get(names[index]), candidate, live.at);
  });
  if (isSame && place.hasChildNodes()) return;
  setChildren(place, ...(candidates.length ? names.map((name) => cards.get(name).element) : [none]));
  callbacks.lockButtons();
}
