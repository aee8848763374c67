// Results of a change: errors, warnings, differences, and the confirmation dialog.

import { $, code, element, letClose, openDialog, setChildren } from "./dom.js";
import { ProblemError } from "./api.js";
import { count, plainText, plural } from "./words.js";

/** The path of a field within its rule; the service sends its path within the policy. */
export const fieldOf = (problem) => (problem.field ?? "").replace(/^rules\[\d+\]\.?/, "");

/** A list of problems. If given, `selectField(field)` is called on a click on the field of a problem. */
function problemList(problems, { kind = "bad", selectField, rule } = {}) {
  return element("ul", { class: `findings ${kind}` }, ...problems.map((one) => {
    const isOfOtherRule = one.rule_id && one.rule_id !== rule;
    const field = isOfOtherRule ? `${one.rule_id} ${fieldOf(one)}`.trim() : fieldOf(one);
    const where = field && selectField && !isOfOtherRule ? element("button", { type: "button", class: "where", text: field, onclick: () => selectField(field) }) : field ? code(field) : null;
    return element("li", {}, where, `${where ? ": " : ""}${one.message ?? ""}${one.hint ? ` – ${one.hint}` : ""}`);
  }));
}

/** The message of a failed call, with its problems. */
export function failure(error, options) {
  if (!(error instanceof ProblemError)) throw error;
  const details = error.errors.length ? problemList(error.errors, options) : null;
  return element("div", { class: "failure" }, element("p", { class: "bad", text: sentence(error.message) }), details);
}

const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1);
const valueText = (one) => (one === null || one === undefined ? "nothing" : plainText(one));

function fieldRows(fields) {
  return fields.map((one) => element("li", {}, code(one.field || "all"), ": ", element("del", { text: valueText(one.before) }), " → ", element("ins", { text: valueText(one.after) })));
}

/** The differences between two revisions. */
export function changeList(changes) {
  const items = [];
  for (const one of changes?.rules ?? []) {
    const fields = one.change === "removed" ? [] : fieldRows(one.fields);
    items.push(element("li", {}, code(one.rule_id), ` ${one.change}`, fields.length ? element("ul", {}, ...fields) : null));
  }
  if (changes?.reordered) items.push(element("li", { text: "the order of the rules" }));
  for (const part of ["identity", "priority", "pressure"]) items.push(...fieldRows(changes?.[part] ?? []));
  for (const kind of ["added", "removed"]) {
    const overrides = changes?.overrides?.[kind] ?? [];
    if (overrides.length) items.push(element("li", { text: `${plural(overrides.length, "override")} ${kind}` }));
  }
  return items.length ? element("ul", { class: "changes" }, ...items) : element("p", { text: "No changes." });
}

const DIRECTIONS = new Set(["tighter", "looser"]);

/** The changes, problems and consequences of a preview. */
export function previewDetails(preview, options) {
  const parts = [element("h3", { text: preview.valid ? "Changes" : "The policy would be invalid" })];
  if (preview.errors.length) parts.push(problemList(preview.errors, options));
  if (preview.valid) parts.push(changeList(preview.changes));
  if (preview.warnings.length) parts.push(problemList(preview.warnings, { ...options, kind: "warning" }));
  if (preview.consequences.length) {
    parts.push(element("ul", { class: "findings" }, ...preview.consequences.map((one) => element("li", {}, code(one.rule_id ?? ""), `: ${DIRECTIONS.has(one.effect) ? `${one.effect}, ` : ""}${one.message}`))));
  }
  const counters = preview.counters ?? {};
  if (preview.valid && counters.available === false) parts.push(element("p", { class: "note", text: `Callers that would be denied are not known: ${counters.reason}.` }));
  const newlyDenied = (counters.affected ?? []).filter((one) => one.refused_after && !one.refused_now);
  if (newlyDenied.length) {
    parts.push(element("p", { text: `${plural(newlyDenied.length, "caller")} would be denied at once and ${newlyDenied.length === 1 ? "is" : "are"} allowed now${counters.more ? " (of those checked)" : ""}:` }),
      element("ul", { class: "findings" }, ...newlyDenied.slice(0, 20).map((one) => element("li", {}, code(one.shown_key ?? one.key), ` has used ${count(one.used)}`))));
  }
  return element("div", { class: "preview" }, ...parts);
}

const dialog = $("confirm");
let confirmedAction = null;

/** Ask for confirmation, then run *action(reason)*; the dialog closes if it succeeds. */
export function confirmAction({ title, content, label, hasReason = true, isDanger = false, action }) {
  setChildren($("confirm-title"), title);
  setChildren($("confirm-text"), ...[content].flat());
  setChildren($("confirm-error"));
  $("confirm-yes").textContent = label;
  $("confirm-yes").className = isDanger ? "danger" : "main";
  $("confirm-yes").disabled = false;
  $("confirm-reason").value = "";
  $("confirm-reason-line").hidden = !hasReason;
  const cancel = dialog.querySelector("[data-close]");
  cancel.hidden = !hasReason; // without a reason there is nothing to cancel
  confirmedAction = action;
  openDialog(dialog);
  (isDanger ? cancel : $("confirm-yes")).focus();
}

export function startFindings() {
  letClose(dialog);
  $("confirm-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    $("confirm-yes").disabled = true;
    try {
      await confirmedAction($("confirm-reason").value);
      dialog.close();
    } catch (error) {
      setChildren($("confirm-error"), failure(error));
    } finally {
      $("confirm-yes").disabled = false;
    }
  });
}
