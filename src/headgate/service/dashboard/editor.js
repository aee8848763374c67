// The editor of a rule: preview, apply, try as candidate, switch off, delete.

import { $, code, element, letClose, openDialog, setChildren, setText } from "./dom.js";
import { ProblemError, admin, changeHeaders } from "./api.js";
import { confirmAction, failure, fieldOf, previewDetails } from "./findings.js";

const dialog = $("editor");
const textArea = $("editor-text");
const TEMPLATE = '{\n  "match": {"endpoint": "/api/**"},\n  "key_by": "ip",\n  "limit": "100/minute"\n}';
const NEW = { id: null, version: null, mode: "enforce", isCandidate: false, isMissing: false };
let callbacks = { reportChange() {}, lockButtons() {} };
let edited = NEW;
let loadedText = ""; // without edits
let isCloseWarned = false;

/** A rule as indented JSON; a part that fits in a line is written in one line. */
function formatRule(value, indent = "") {
  const flat = JSON.stringify(value, null, 1).replace(/\s*\n\s*/g, " ").replace(/([[{]) /g, "$1").replace(/ ([\]}])/g, "$1");
  if (value === null || typeof value !== "object" || (indent && flat.length + indent.length <= 72)) return JSON.stringify(value) === flat ? flat : formatInline(value);
  const inner = `${indent}  `;
  const parts = Array.isArray(value) ? value.map((one) => inner + formatRule(one, inner))
    : Object.entries(value).map(([name, one]) => `${inner}${JSON.stringify(name)}: ${formatRule(one, inner)}`);
  const [first, last] = Array.isArray(value) ? "[]" : "{}";
  return parts.length ? `${first}\n${parts.join(",\n")}\n${indent}${last}` : first + last;
}

function formatInline(value) {
  if (Array.isArray(value)) return `[${value.map(formatInline).join(", ")}]`;
  if (value !== null && typeof value === "object") return `{${Object.entries(value).map(([name, one]) => `${JSON.stringify(name)}: ${formatInline(one)}`).join(", ")}}`;
  return JSON.stringify(value);
}

/** The range of a field's name in the text, or of the last name of its path that is there; null if none is. */
function fieldRange(text, field) {
  let at = 0;
  let range = null;
  for (const name of field.split(/[.[\]]+/).filter((one) => one && !/^\d+$/.test(one))) {
    const next = text.indexOf(JSON.stringify(name), at);
    if (next < 0) break;
    range = [next, next + name.length + 2];
    at = range[1];
  }
  return range;
}

function selectField(field) {
  const range = fieldRange(textArea.value, field);
  textArea.focus();
  if (range) textArea.setSelectionRange(...range);
}

/** Show the errors with their lines. */
function showProblems(error) {
  if (!(error instanceof ProblemError)) throw error;
  const lines = error.errors.map((one) => {
    const range = fieldRange(textArea.value, fieldOf(one));
    return { ...one, message: range ? `line ${textArea.value.slice(0, range[0]).split("\n").length}: ${one.message}` : one.message };
  });
  const located = new ProblemError(error.status, error.message, { errors: lines });
  textArea.setAttribute("aria-invalid", "true");
  setChildren($("editor-findings"), failure(located, { selectField, rule: edited.id ?? $("editor-id").value.trim() }));
  if (error.errors.length) selectField(fieldOf(error.errors[0]));
  if (error.status === 412 && edited.id !== null) return showOther();
}

/** The rule was changed in the meantime: show the version in force and offer a choice. */
async function showOther() {
  const { id } = edited;
  try {
    const { data } = await admin("GET", path(id));
    const keepMine = () => {
      edited = { ...edited, version: data.version };
      clearFindings();
      setText($("editor-note"), `Apply replaces revision ${data.version} with this text.`);
      textArea.focus();
    };
    $("editor-findings").append(
      element("p", { text: `In force since revision ${data.version}:` }),
      element("pre", { tabindex: "0", "aria-label": "The rule in force", text: formatRule(data.rule) }),
      element("div", { class: "line tight" },
        element("button", { type: "button", id: "editor-theirs", text: "Use this version", onclick: () => edit(id) }),
        element("button", { type: "button", id: "editor-mine", text: "Keep my version", onclick: keepMine })));
  } catch (error) { $("editor-findings").append(failure(error)); }
}

function clearFindings() {
  textArea.removeAttribute("aria-invalid");
  setChildren($("editor-findings"));
  setChildren($("editor-result"));
}

function parsedRule() {
  let value;
  try { value = JSON.parse(textArea.value); } catch (error) {
    throw new ProblemError(0, `invalid JSON: ${error.message}`);
  }
  if (value === null || typeof value !== "object" || Array.isArray(value)) throw new ProblemError(0, "a rule is a JSON object, such as {\"key_by\": \"ip\", \"limit\": \"5/minute\"}");
  return value;
}

function ruleId() {
  const id = edited.id ?? $("editor-id").value.trim();
  if (!/^[A-Za-z0-9._-]{1,100}$/.test(id)) throw new ProblemError(0, "the id of a rule has 1 to 100 characters of a-z, A-Z, 0-9, '.', '_' and '-'");
  return id;
}

const path = (id) => `/rules/${encodeURIComponent(id)}`;

/** Run *action* with the buttons disabled and show its errors. */
async function attempt(action) {
  clearFindings();
  const buttons = [...dialog.querySelectorAll(".actions button:not(:disabled)")];
  const focused = document.activeElement;
  for (const button of buttons) button.disabled = true;
  try { await action(); } catch (error) { await showProblems(error); } finally {
    for (const button of buttons) button.disabled = false;
    if (focused?.isConnected && document.activeElement === document.body) focused.focus();
    callbacks.lockButtons();
  }
}

const preview = () => attempt(async () => {
  const { data } = await admin("POST", "/rules:preview", { body: { rules: { [ruleId()]: parsedRule() } } });
  if (!data.valid) throw new ProblemError(422, "the rule is invalid", { errors: data.errors });
  setChildren($("editor-result"), previewDetails(data, { selectField, rule: ruleId() }));
});

const reason = () => $("editor-reason").value;

const apply = () => attempt(async () => {
  const id = ruleId();
  const headers = changeHeaders({ version: edited.id === null ? null : edited.version, isNew: edited.id === null, reason: reason() });
  const { data } = await admin("PUT", path(id), { body: parsedRule(), headers });
  await finish(id, `${id} is in force, revision ${data.version}`, data.warnings);
});

const tryAsCandidate = () => attempt(async () => {
  const id = ruleId();
  const { mode, candidate_of, ...body } = parsedRule(); // a candidate has its own values
  await admin("POST", `${path(id)}/candidate`, { body, headers: changeHeaders({ reason: reason() }) });
  finish(id, `the candidate of ${id} is running; see Candidates for what it would deny`);
});

const toggle = () => attempt(async () => {
  const isOff = edited.mode === "off";
  const headers = changeHeaders({ version: edited.version, reason: reason() });
  const { data } = await admin("POST", `${path(edited.id)}:${isOff ? "enable" : "disable"}`, { headers });
  finish(edited.id, `${edited.id} is ${data.mode === "off" ? "switched off" : `on again, mode ${data.mode}`}`);
});

/** Report a change and close the dialog, or show the warnings. */
async function finish(id, message, warnings = []) {
  callbacks.reportChange(message);
  if (!warnings.length) { dialog.close(); return; }
  if (edited.id === null) showForm({ isNew: false, id });
  setChildren($("editor-result"), element("p", { class: "good", text: message }), failure(new ProblemError(200, "with warnings", { errors: warnings }), { kind: "warning", rule: id }));
  await loadRule(id);
}

function remove() {
  const { id, version } = edited;
  confirmAction({
    title: `Delete ${id}?`, label: "Delete", isDanger: true,
    content: element("p", {}, code(id), " no longer limits requests. You can restore it with a rollback."),
    action: async (note) => {
      await admin("DELETE", path(id), { headers: changeHeaders({ version, reason: note }) });
      dialog.close();
      callbacks.reportChange(`${id} is deleted`);
    },
  });
}

function loadText(text) {
  textArea.value = text && `${text}\n`;
  loadedText = textArea.value;
  isCloseWarned = false;
}

async function loadRule(id) {
  const { data } = await admin("GET", path(id));
  edited = { ...NEW, id, version: data.version, mode: data.rule.mode ?? "enforce", isCandidate: Boolean(data.rule.candidate_of) };
  loadText(formatRule(data.rule));
  setText($("editor-note"), `In force since revision ${data.version}. A change is applied only if the rule has not changed in the meantime.`);
}

function showForm({ isNew, id = edited.id }) {
  setText($("editor-title"), isNew ? "New rule" : `Rule ${id}`);
  dialog.querySelector(".actions").hidden = edited.isMissing;
  $("editor-id-line").hidden = !isNew;
  for (const name of ["editor-switch", "editor-delete"]) $(name).hidden = isNew;
  $("editor-try").hidden = isNew || edited.isCandidate;
  setText($("editor-switch"), edited.mode === "off" ? "Switch on" : "Switch off");
  $("editor-reason").value = "";
  clearFindings();
  callbacks.lockButtons();
}

/** Open the editor for the rule *id*. */
export async function edit(id) {
  edited = { ...NEW, id, isMissing: true };
  try {
    await loadRule(id);
    showForm({ isNew: false });
  } catch (error) {
    loadText("");
    setText($("editor-note"), "");
    showForm({ isNew: false });
    setChildren($("editor-findings"), failure(error));
  }
  openDialog(dialog);
  textArea.focus();
  textArea.setSelectionRange(0, 0);
}

export function editNew() {
  edited = NEW;
  $("editor-id").value = "";
  loadText(TEMPLATE);
  setText($("editor-note"), "The new rule is added at the end of the policy.");
  showForm({ isNew: true });
  openDialog(dialog);
  $("editor-id").focus();
}

/** True if the dialog may close: unapplied text needs a second attempt to close. */
function mayClose() {
  if (isCloseWarned || textArea.value === loadedText) return true;
  isCloseWarned = true;
  setChildren($("editor-findings"), element("p", { class: "warning", text: "Your changes are not applied. Close again to discard them." }));
  return false;
}

export function startEditor(pageCallbacks) {
  callbacks = pageCallbacks;
  letClose(dialog, mayClose);
  $("editor-form").addEventListener("submit", (event) => event.preventDefault());
  const buttons = { preview, apply, try: tryAsCandidate, switch: toggle, delete: remove };
  for (const [name, action] of Object.entries(buttons)) $(`editor-${name}`).addEventListener("click", action);
  textArea.addEventListener("input", () => { textArea.removeAttribute("aria-invalid"); isCloseWarned = false; });
}
