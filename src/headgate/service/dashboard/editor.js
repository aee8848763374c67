// The editor of a rule: preview, apply, try as candidate, switch off, delete.

import { $, code, element, letClose, openDialog, setChildren, setText } from "./dom.js";
import { ProblemError, admin, changeHeaders } from "./api.js";
import { confirmAction, failure, previewDetails } from "./findings.js";

const dialog = $("editor");
const textArea = $("editor-text");
const overlay = $("editor-overlay");
const TEMPLATE = "match:\n  endpoint: /api/**\nkey_by: ip\nlimit: 100/minute\n";
const NEW = { id: null, version: null, mode: "enforce", isCandidate: false, isMissing: false };
let callbacks = { reportChange() {}, lockButtons() {} };
let edited = NEW;
let loadedText = ""; // without edits
let isCloseWarned = false;

// ---- the text: line numbers, and errors in their lines

let marks = new Map(); // messages by line

/** Draw the line numbers, and behind the text the lines with errors and their messages. */
function drawLines() {
  const lines = textArea.value.split("\n");
  setText($("editor-numbers"), lines.map((_, index) => index + 1).join("\n"));
  setChildren(overlay, ...lines.map((line, index) => {
    const message = marks.get(index + 1);
    return element("div", { class: message ? "is-wrong" : null }, element("span", { class: "line-text", text: line || " " }), message ? element("span", { class: "line-message", text: `  ← ${message}` }) : null);
  }));
  textArea.rows = Math.min(24, Math.max(8, lines.length + 1));
  followScroll();
}

function followScroll() {
  overlay.style.transform = `translate(${-textArea.scrollLeft}px, ${-textArea.scrollTop}px)`;
  $("editor-numbers").style.transform = `translateY(${-textArea.scrollTop}px)`;
}

function mark(problems) {
  marks = new Map(problems.filter((one) => one.line).map((one) => [one.line, one.message]));
  if (problems.length) textArea.setAttribute("aria-invalid", "true");
  else textArea.removeAttribute("aria-invalid");
  drawLines();
}

/** Select the line of a problem from its column on. */
function selectProblem({ line, column = 1 }) {
  textArea.focus();
  if (!line) return;
  const before = textArea.value.split("\n").slice(0, line - 1).reduce((sum, one) => sum + one.length + 1, 0);
  const end = textArea.value.indexOf("\n", before);
  textArea.setSelectionRange(before + column - 1, end < 0 ? textArea.value.length : end);
}

/** Show the errors in their lines and in a list. */
function showProblems(error) {
  if (!(error instanceof ProblemError)) throw error;
  const rule = edited.id ?? $("editor-id").value.trim();
  const own = error.errors.filter((one) => !one.rule_id || one.rule_id === rule);
  mark(own);
  setChildren($("editor-findings"), failure(error, { selectProblem, rule }));
  if (own.length) selectProblem(own[0]);
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
      element("pre", { tabindex: "0", "aria-label": "The rule in force", text: data.text }),
      element("div", { class: "line tight" },
        element("button", { type: "button", id: "editor-theirs", text: "Use this version", onclick: () => edit(id) }),
        element("button", { type: "button", id: "editor-mine", text: "Keep my version", onclick: keepMine })));
  } catch (error) { $("editor-findings").append(failure(error)); }
}

function clearFindings() {
  mark([]);
  setChildren($("editor-findings"));
  setChildren($("editor-result"));
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
  const { data } = await admin("POST", `${path(ruleId())}:preview`, { yaml: textArea.value });
  if (!data.valid) throw new ProblemError(422, "the rule is invalid", { errors: data.errors });
  setChildren($("editor-result"), previewDetails(data, { selectProblem, rule: ruleId() }));
});

const reason = () => $("editor-reason").value;

const apply = () => attempt(async () => {
  const id = ruleId();
  const headers = changeHeaders({ version: edited.id === null ? null : edited.version, isNew: edited.id === null, reason: reason() });
  const { data } = await admin("PUT", path(id), { yaml: textArea.value, headers });
  await finish(id, `${id} is in force, revision ${data.version}`, data.warnings);
});

const tryAsCandidate = () => attempt(async () => {
  const id = ruleId();
  const yaml = textArea.value.replace(/^(mode|candidate_of):.*$/gm, "#"); // a candidate has its own values
  await admin("POST", `${path(id)}/candidate`, { yaml, headers: changeHeaders({ reason: reason() }) });
  finish(id, `the candidate of ${id} is running; Shadow rules shows what it would deny`);
});

/** Switch a rule off or on again, after a confirmation. */
export async function switchRule(id) {
  let rule;
  try { rule = (await admin("GET", path(id))).data; } catch (error) { rule = { error }; }
  const isOff = rule.rule?.mode === "off";
  confirmAction({
    title: `Switch ${isOff ? "on" : "off"} ${id}?`, label: isOff ? "Switch on" : "Switch off", isDanger: !isOff,
    content: rule.error ? failure(rule.error) : element("p", { text: isOff ? "The rule gets the mode that it had before." : "The rule no longer limits requests. Its counters stay." }),
    action: async (note) => {
      const { data } = await admin("POST", `${path(id)}:${isOff ? "enable" : "disable"}`, { headers: changeHeaders({ version: rule.version, reason: note }) });
      dialog.close();
      callbacks.reportChange(`${id} is ${data.mode === "off" ? "switched off" : `on again, mode ${data.mode}`}`);
    },
  });
}

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
  textArea.value = text;
  mark([]);
  loadedText = textArea.value;
  isCloseWarned = false;
}

async function loadRule(id) {
  const { data } = await admin("GET", path(id));
  edited = { ...NEW, id, version: data.version, mode: data.rule.mode ?? "enforce", isCandidate: Boolean(data.rule.candidate_of) };
  loadText(data.text);
  setText($("editor-note"), `In force since revision ${data.version}. Comments in the rules file stay where their lines stay.`);
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
  const buttons = { preview, apply, try: tryAsCandidate, switch: () => switchRule(edited.id), delete: remove };
  for (const [name, action] of Object.entries(buttons)) $(`editor-${name}`).addEventListener("click", action);
  textArea.addEventListener("input", () => { mark([]); isCloseWarned = false; });
  textArea.addEventListener("scroll", followScroll);
  textArea.addEventListener("keydown", (event) => {
    // Enter keeps the indentation of its line.
    if (event.key !== "Enter" || event.isComposing) return;
    const indent = /(?:^|\n)([ ]*)[^\n]*$/.exec(textArea.value.slice(0, textArea.selectionStart))[1];
    event.preventDefault();
    document.execCommand("insertText", false, `\n${indent}`); // the only way that can be undone
  });
}
