// Candidate rules, and what they would have done.

import { $, code, fill, made } from "./dom.js";
import { momentOf } from "./clock.js";
import { admin, changing } from "./api.js";
import { failure, previewed, sure } from "./findings.js";
import { callerWord, count, plural } from "./words.js";

let acts = { edit() {}, changed() {}, shown() {}, ruleOf: () => null };

export function startCandidates(given) { acts = given; }

/** " of 14 tenants"; empty for a rule with one counter for all. */
function callers(one) {
  const word = callerWord(acts.ruleOf(one.rule_id)?.key_by);
  return word ? ` of ${one.keys_exact === false ? "about " : ""}${plural(one.keys ?? 0, word)}` : "";
}

/** "`a-candidate` would have denied 312 requests of 14 tenants since yesterday 14:02; `a` allowed 300 of them." */
function sentence(one, when) {
  if (!one.requests) return [code(one.rule_id), ` has seen no requests ${when}.`];
  if (!one.would_deny) {
    return [code(one.rule_id), ` would have denied none of ${plural(one.requests ?? 0, "request")} ${when}`, ...differing(one), "."];
  }
  const parts = [code(one.rule_id), ` would have denied ${plural(one.would_deny, "request")}${callers(one)} ${when}`];
  if (one.candidate_of && one.newly_denied !== null && one.newly_denied !== undefined) {
    parts.push("; ", code(one.candidate_of), ` allowed ${share(one.newly_denied, one.would_deny)}`);
  }
  return [...parts, ...unnoticed(one), ...differing(one), "."];
}

/** Requests that other rules denied anyway, if there are more than the live rule denied. */
function unnoticed(one) {
  const isMore = one.denied_anyway > one.would_deny - (one.newly_denied ?? one.would_deny);
  return isMore ? [`; rules in force denied ${share(one.denied_anyway, one.would_deny)} anyway`] : [];
}

function share(part, whole) {
  if (part === whole) return whole === 1 ? "it" : "all of them";
  return part === 1 ? "one of them" : part ? `${count(part)} of them` : "none of them";
}

function differing(one) {
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
    preview = previewed((await admin("POST", `${path}:preview`, { body: {} })).data);
  } catch (error) { preview = failure(error); }
  sure({
    title: `Adopt ${one.rule_id}?`,
    content: [made("p", {}, "The candidate replaces ", code(one.candidate_of), " in one revision. Counters keep their values."), preview],
    yes: "Adopt",
    doing: async (reason) => {
      await admin("POST", path, { body: {}, headers: changing({ version, reason }) });
      acts.changed(`${one.rule_id} has replaced ${one.candidate_of}`);
    },
  });
}

function discard(one) {
  sure({
    title: `Discard ${one.rule_id}?`,
    content: made("p", { text: "The candidate and its counts are removed. The live rule does not change." }),
    yes: "Discard", isDanger: true,
    doing: async (reason) => {
      await admin("DELETE", `/rules/${encodeURIComponent(one.rule_id)}`, { headers: changing({ reason }) });
      acts.changed(`${one.rule_id} is discarded`);
    },
  });
}

const cards = new Map();
const none = made("p", { class: "note", text: "No candidates. “Try as candidate” in the editor of a rule counts what a change would deny, without denying it." });

/** The card of a candidate. Its buttons are kept on updates, and with them the focus. */
function card(one) {
  const buttons = one.candidate_of ? [
    made("button", { type: "button", "data-writes": true, "aria-label": `Adopt ${one.rule_id}`, text: "Adopt", onclick: () => adopt(one) }),
    made("button", { type: "button", class: "danger", "data-writes": true, "aria-label": `Discard ${one.rule_id}`, text: "Discard", onclick: () => discard(one) }),
  ] : [];
  buttons.push(made("button", { type: "button", "aria-label": `Edit ${one.rule_id}`, text: "Edit", onclick: () => acts.edit(one.rule_id) }));
  const words = made("div");
  return { words, shown: "", element: made("div", { class: "candidate" }, words, made("div", { class: "line tight" }, ...buttons)) };
}

function tell(known, one, at) {
  const day = one.last_day;
  const isOld = day && at - one.since > 86_400;
  const wanted = JSON.stringify([one, Math.floor(at / 3600), callers(one)]);
  if (known.shown === wanted) return;
  known.shown = wanted;
  fill(known.words, made("p", {}, ...sentence(one, `since ${momentOf(one.since)}`)),
    isOld ? made("p", { class: "note" }, ...sentence({ ...day, rule_id: one.rule_id, candidate_of: one.candidate_of }, "in the last 24 hours")) : null);
}

export function showCandidates(live) {
  const place = $("candidate-list");
  const found = [...(live.candidates ?? [])].sort((one, other) => Boolean(other.candidate_of) - Boolean(one.candidate_of));
  const names = found.map((one) => `${one.rule_id}\u0000${one.candidate_of ?? ""}`);
  const isSame = names.length === cards.size && names.every((name) => cards.has(name));
  for (const name of [...cards.keys()]) if (!names.includes(name)) cards.delete(name);
  found.forEach((one, index) => {
    if (!cards.has(names[index])) cards.set(names[index], card(one));
    tell(cards.get(names[index]), one, live.at);
  });
  if (isSame && place.hasChildNodes()) return;
  fill(place, ...(found.length ? names.map((name) => cards.get(name).element) : [none]));
  acts.shown();
}
