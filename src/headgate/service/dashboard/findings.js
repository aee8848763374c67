// Results of a change: errors, warnings, differences, and the confirmation dialog.

import { $, closing, code, fill, made, open } from "./dom.js";
import { ProblemError } from "./api.js";
import { count, plain, plural } from "./words.js";

/** The path of a field within its rule: the service says where in the whole policy it is. */
export const fieldOf = (problem) => (problem.field ?? "").replace(/^rules\[\d+\]\.?/, "");

/** A list of problems; a click on one leads to where it is, if `lead(field)` is given. */
export function problemList(problems, { kind = "bad", lead, rule } = {}) {
  return made("ul", { class: `findings ${kind}` }, ...problems.map((one) => {
    const isOther = one.rule_id && one.rule_id !== rule;
    const field = isOther ? `${one.rule_id} ${fieldOf(one)}`.trim() : fieldOf(one);
    const where = field && lead && !isOther ? made("button", { type: "button", class: "where", text: field, onclick: () => lead(field) }) : field ? code(field) : null;
    return made("li", {}, where, `${where ? ": " : ""}${one.message ?? ""}${one.hint ? ` – ${one.hint}` : ""}`);
  }));
}

/** What went wrong with a call, with all its details. */
export function failure(error, options) {
  if (!(error instanceof ProblemError)) throw error;
  const details = error.errors.length ? problemList(error.errors, options) : null;
  return made("div", { class: "failure" }, made("p", { class: "bad", text: sentence(error.message) }), details);
}

const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1);
const value = (one) => (one === null || one === undefined ? "nothing" : plain(one));

function fieldRows(fields) {
  return fields.map((one) => made("li", {}, code(one.field || "all"), ": ", made("del", { text: value(one.before) }), " → ", made("ins", { text: value(one.after) })));
}

/** What differs between two revisions, as a list. */
export function changeList(changes) {
  const items = [];
  for (const one of changes?.rules ?? []) {
    const fields = one.change === "removed" ? [] : fieldRows(one.fields);
    items.push(made("li", {}, code(one.rule_id), ` ${one.change}`, fields.length ? made("ul", {}, ...fields) : null));
  }
  if (changes?.reordered) items.push(made("li", { text: "the order of the rules" }));
  for (const part of ["identity", "priority", "pressure"]) items.push(...fieldRows(changes?.[part] ?? []));
  for (const kind of ["added", "removed"]) {
    const found = changes?.overrides?.[kind] ?? [];
    if (found.length) items.push(made("li", { text: `${plural(found.length, "override")} ${kind}` }));
  }
  return items.length ? made("ul", { class: "changes" }, ...items) : made("p", { text: "No changes." });
}

const DIRECTIONS = new Set(["tighter", "looser"]);

/** What a preview says. */
export function previewed(told, options) {
  const parts = [made("h3", { text: told.valid ? "Changes" : "The policy would be invalid" })];
  if (told.errors.length) parts.push(problemList(told.errors, options));
  if (told.valid) parts.push(changeList(told.changes));
  if (told.warnings.length) parts.push(problemList(told.warnings, { ...options, kind: "odd" }));
  if (told.consequences.length) {
    parts.push(made("ul", { class: "findings" }, ...told.consequences.map((one) => made("li", {}, code(one.rule_id ?? ""), `: ${DIRECTIONS.has(one.effect) ? `${one.effect}, ` : ""}${one.message}`))));
  }
  const counters = told.counters ?? {};
  if (told.valid && counters.available === false) parts.push(made("p", { class: "note", text: `Callers that would be denied are not known: ${counters.reason}.` }));
  const hit = (counters.affected ?? []).filter((one) => one.refused_after && !one.refused_now);
  if (hit.length) {
    parts.push(made("p", { text: `${plural(hit.length, "caller")} would be denied at once and ${hit.length === 1 ? "is" : "are"} allowed now${counters.more ? " (of those checked)" : ""}:` }),
      made("ul", { class: "findings" }, ...hit.slice(0, 20).map((one) => made("li", {}, code(one.shown_key ?? one.key), ` has used ${count(one.used)}`))));
  }
  return made("div", { class: "previewed" }, ...parts);
}

const dialog = $("sure");
let act = null;

/** Ask before something is done. *doing(reason)* does it; the dialog closes if that succeeds. */
export function sure({ title, content, yes, hasReason = true, isDanger = false, doing }) {
  fill($("sure-title"), title);
  fill($("sure-text"), ...[content].flat());
  fill($("sure-error"));
  $("sure-yes").textContent = yes;
  $("sure-yes").className = isDanger ? "danger" : "main";
  $("sure-yes").disabled = false;
  $("sure-reason").value = "";
  $("sure-reason-line").hidden = !hasReason;
  const cancel = dialog.querySelector("[data-close]");
  cancel.hidden = !hasReason; // there is nothing to cancel
  act = doing;
  open(dialog);
  (isDanger ? cancel : $("sure-yes")).focus();
}

export function startFindings() {
  closing(dialog);
  $("sure-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    $("sure-yes").disabled = true;
    try {
      await act($("sure-reason").value);
      dialog.close();
    } catch (error) {
      fill($("sure-error"), failure(error));
    } finally {
      $("sure-yes").disabled = false;
    }
  });
}
