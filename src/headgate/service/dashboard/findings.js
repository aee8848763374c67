// Results of a change: errors, warnings, differences, and the confirmation dialog.

import { $, code, element, letClose, openDialog, setChildren, shortKey } from "./dom.js";
import { count, plainText, plural } from "./words.js";

/** The path of a field within its rule; the service sends its path within the policy. */
const fieldOf = (problem) => (problem.field ?? "").replace(/^rules\[\d+\]\.?/, "");

/** "line 3, column 5: " if the place of *problem* is known. */
const placeOf = (problem) => (problem.line ? `line ${problem.line}${problem.column ? `, column ${problem.column}` : ""}` : "");

/** A list of problems. If given, `selectProblem(problem)` is called on a click on the place of a problem. */
function problemList(problems, { kind = "bad", selectProblem, rule } = {}) {
  return element("ul", { class: `findings ${kind}` }, ...problems.map((one) => {
    const isOfOtherRule = one.rule_id && one.rule_id !== rule;
    const field = isOfOtherRule ? `${one.rule_id} ${fieldOf(one)}`.trim() : fieldOf(one);
    const place = isOfOtherRule ? "" : placeOf(one);
    const where = place && selectProblem ? element("button", { type: "button", class: "where", text: place, onclick: () => selectProblem(one) }) : place ? element("span", { text: place }) : null;
    return element("li", {}, where, where ? ": " : "", field ? code(field) : null, `${field ? ": " : ""}${one.message ?? ""}${one.hint ? ` – ${one.hint}` : ""}`);
  }));
}

/** The message of a failed call, with its problems. */
export function failure(error, options) {
  if (error.name !== "ProblemError") throw error;
  const details = error.errors?.length ? problemList(error.errors, options) : null;
  return element("div", { class: "failure" }, element("p", { class: "bad", text: sentence(error.message) }), details);
}

const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1);
const valueText = (one) => (one === null || one === undefined ? "nothing" : plainText(one));

function fieldRows(fields) {
  return fields.map((one) => element("li", {}, code(one.field || "all"), ": ", element("del", { text: valueText(one.before) }), " → ", element("ins", { text: valueText(one.after) })));
}

/** The differences between two revisions; `directions(ruleId)` are badges of a rule. */
export function changeList(changes, directions = () => []) {
  const items = [];
  for (const one of changes?.rules ?? []) {
    const fields = one.change === "removed" ? [] : fieldRows(one.fields);
    const badges = directions(one.rule_id).map((text) => element("span", { class: `badge ${text === "tighter" ? "warning" : ""}`, text }));
    items.push(element("li", {}, code(one.rule_id), ` ${one.change} `, ...badges, fields.length ? element("ul", {}, ...fields) : null));
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

/** What a change means beyond the difference, which is shown once: "tighter" and "looser" are badges of it. */
function consequenceList(preview) {
  const shown = preview.consequences.map((one) => (one.effect === "mode" ? { ...one, message: one.message.split(": ").slice(1).join(": ") } : one))
    .filter((one) => !DIRECTIONS.has(one.effect) && one.message);
  return shown.length ? element("ul", { class: "findings" }, ...shown.map((one) => element("li", {}, code(one.rule_id ?? ""), `: ${one.message}`))) : null;
}

/** The changes, problems and consequences of a preview; for one *rule*, no warnings about others. */
export function previewDetails(preview, options = {}) {
  const parts = [element("h3", { text: preview.valid ? "Changes" : "The policy would be invalid" })];
  if (preview.errors.length) parts.push(problemList(preview.errors, options));
  const directions = (id) => [...new Set(preview.consequences.filter((one) => one.rule_id === id && DIRECTIONS.has(one.effect)).map((one) => one.effect))];
  if (preview.valid) parts.push(changeList(preview.changes, directions), consequenceList(preview));
  const warnings = preview.warnings.filter((one) => !options.rule || one.rule_id === options.rule);
  if (warnings.length) parts.push(problemList(warnings, { ...options, kind: "warning" }));
  const counters = preview.counters ?? {};
  if (preview.valid && counters.available === false) parts.push(element("p", { class: "note", text: `Callers that would be denied are not known: ${counters.reason}.` }));
  const newlyDenied = (counters.affected ?? []).filter((one) => one.refused_after && !one.refused_now);
  if (newlyDenied.length) {
    parts.push(element("p", { text: `${plural(newlyDenied.length, "caller")} would be denied at once and ${newlyDenied.length === 1 ? "is" : "are"} allowed now${counters.more ? " (of those checked)" : ""}:` }),
      element("ul", { class: "findings" }, ...newlyDenied.slice(0, 20).map((one) => element("li", {}, code(shortKey(one.shown_key ?? one.key)), ` has used ${count(one.used)}`))));
  }
  return element("div", { class: "preview" }, ...parts.filter(Boolean));
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
