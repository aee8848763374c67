// The editor of a rule: preview, apply, try beside, switch off, delete.

import { $, closing, code, fill, made, open, say } from "./dom.js";
import { ProblemError, admin, changing } from "./api.js";
import { failure, fieldOf, previewed, sure } from "./findings.js";

const dialog = $("editor");
const area = $("editor-text");
const START = '{\n  "match": {"endpoint": "/api/**"},\n  "key_by": "ip",\n  "limit": "100/minute"\n}';
const NEW = { id: null, version: null, mode: "enforce", isCandidate: false, isLost: false };
let acts = { changed() {}, shown() {} };
let edited = NEW;
let before = ""; // the text as it was when it was loaded
let isWarned = false;

/** A rule as people write it: what fits in a line stays in one. */
export function written(value, indent = "") {
  const flat = JSON.stringify(value, null, 1).replace(/\s*\n\s*/g, " ").replace(/([[{]) /g, "$1").replace(/ ([\]}])/g, "$1");
  if (value === null || typeof value !== "object" || (indent && flat.length + indent.length <= 72)) return JSON.stringify(value) === flat ? flat : oneLine(value);
  const inner = `${indent}  `;
  const parts = Array.isArray(value) ? value.map((one) => inner + written(one, inner))
    : Object.entries(value).map(([name, one]) => `${inner}${JSON.stringify(name)}: ${written(one, inner)}`);
  const [first, last] = Array.isArray(value) ? "[]" : "{}";
  return parts.length ? `${first}\n${parts.join(",\n")}\n${indent}${last}` : first + last;
}

function oneLine(value) {
  if (Array.isArray(value)) return `[${value.map(oneLine).join(", ")}]`;
  if (value !== null && typeof value === "object") return `{${Object.entries(value).map(([name, one]) => `${JSON.stringify(name)}: ${oneLine(one)}`).join(", ")}}`;
  return JSON.stringify(value);
}

/** Where in the text a field stands: the names of its path one after the other. */
export function placeOf(text, field) {
  let at = 0;
  let found = null;
  for (const name of field.split(/[.[\]]+/).filter((one) => one && !/^\d+$/.test(one))) {
    const next = text.indexOf(JSON.stringify(name), at);
    if (next < 0) break;
    found = [next, next + name.length + 2];
    at = found[1];
  }
  return found;
}

function lead(field) {
  const place = placeOf(area.value, field);
  area.focus();
  if (place) area.setSelectionRange(...place);
}

/** Show the errors with their lines. */
function showProblems(error) {
  if (!(error instanceof ProblemError)) throw error;
  const lines = error.errors.map((one) => {
    const place = placeOf(area.value, fieldOf(one));
    return { ...one, message: place ? `line ${area.value.slice(0, place[0]).split("\n").length}: ${one.message}` : one.message };
  });
  const told = new ProblemError(error.status, error.message, { errors: lines });
  area.setAttribute("aria-invalid", "true");
  fill($("editor-findings"), failure(told, { lead, rule: edited.id ?? $("editor-id").value.trim() }));
  if (error.errors.length) lead(fieldOf(error.errors[0]));
  if (error.status === 412 && edited.id !== null) return showOther();
}

/** The rule was changed in the meantime: show the version in force and offer a choice. */
async function showOther() {
  const { id } = edited;
  try {
    const { data } = await admin("GET", path(id));
    const mine = () => {
      edited = { ...edited, version: data.version };
      clear();
      say($("editor-note"), `Apply replaces revision ${data.version} with this text.`);
      area.focus();
    };
    $("editor-findings").append(
      made("p", { text: `In force since revision ${data.version}:` }),
      made("pre", { tabindex: "0", "aria-label": "The rule in force", text: written(data.rule) }),
      made("div", { class: "line tight" },
        made("button", { type: "button", id: "editor-theirs", text: "Use this version", onclick: () => edit(id) }),
        made("button", { type: "button", id: "editor-mine", text: "Keep my version", onclick: mine })));
  } catch (error) { $("editor-findings").append(failure(error)); }
}

function clear() {
  area.removeAttribute("aria-invalid");
  fill($("editor-findings"));
  fill($("editor-result"));
}

function rule() {
  let found;
  try { found = JSON.parse(area.value); } catch (error) {
    throw new ProblemError(0, `invalid JSON: ${error.message}`);
  }
  if (found === null || typeof found !== "object" || Array.isArray(found)) throw new ProblemError(0, "a rule is a JSON object, such as {\"key_by\": \"ip\", \"limit\": \"5/minute\"}");
  return found;
}

function named() {
  const id = edited.id ?? $("editor-id").value.trim();
  if (!/^[A-Za-z0-9._-]{1,100}$/.test(id)) throw new ProblemError(0, "the id of a rule has 1 to 100 characters of a-z, A-Z, 0-9, '.', '_' and '-'");
  return id;
}

const path = (id) => `/rules/${encodeURIComponent(id)}`;

async function trying(doing) {
  clear();
  const buttons = [...dialog.querySelectorAll(".actions button:not(:disabled)")];
  const focused = document.activeElement;
  for (const button of buttons) button.disabled = true;
  try { await doing(); } catch (error) { await showProblems(error); } finally {
    for (const button of buttons) button.disabled = false;
    if (focused?.isConnected && document.activeElement === document.body) focused.focus();
    acts.shown();
  }
}

const preview = () => trying(async () => {
  const { data } = await admin("POST", "/rules:preview", { body: { rules: { [named()]: rule() } } });
  if (!data.valid) throw new ProblemError(422, "the rule is invalid", { errors: data.errors });
  fill($("editor-result"), previewed(data, { lead, rule: named() }));
});

const reason = () => $("editor-reason").value;

const apply = () => trying(async () => {
  const id = named();
  const headers = changing({ version: edited.id === null ? null : edited.version, isNew: edited.id === null, reason: reason() });
  const { data } = await admin("PUT", path(id), { body: rule(), headers });
  await done(id, `${id} is in force, revision ${data.version}`, data.warnings);
});

const tryBeside = () => trying(async () => {
  const id = named();
  const { mode, candidate_of, ...body } = rule(); // a candidate has its own
  await admin("POST", `${path(id)}/candidate`, { body, headers: changing({ reason: reason() }) });
  done(id, `the candidate of ${id} is running; see Candidates for what it would deny`);
});

const switchIt = () => trying(async () => {
  const isOff = edited.mode === "off";
  const headers = changing({ version: edited.version, reason: reason() });
  const { data } = await admin("POST", `${path(edited.id)}:${isOff ? "enable" : "disable"}`, { headers });
  done(edited.id, `${edited.id} is ${data.mode === "off" ? "switched off" : `on again, mode ${data.mode}`}`);
});

async function done(id, told, warnings = []) {
  acts.changed(told);
  if (!warnings.length) { dialog.close(); return; }
  if (edited.id === null) lay({ isNew: false, id });
  fill($("editor-result"), made("p", { class: "good", text: told }), failure(new ProblemError(200, "with warnings", { errors: warnings }), { kind: "odd", rule: id }));
  await load(id);
}

function remove() {
  const { id, version } = edited;
  sure({
    title: `Delete ${id}?`, yes: "Delete", isDanger: true,
    content: made("p", {}, code(id), " no longer limits requests. You can restore it with a rollback."),
    doing: async (why) => {
      await admin("DELETE", path(id), { headers: changing({ version, reason: why }) });
      dialog.close();
      acts.changed(`${id} is deleted`);
    },
  });
}

function put(text) {
  area.value = text && `${text}\n`;
  before = area.value;
  isWarned = false;
}

async function load(id) {
  const { data } = await admin("GET", path(id));
  edited = { ...NEW, id, version: data.version, mode: data.rule.mode ?? "enforce", isCandidate: Boolean(data.rule.candidate_of) };
  put(written(data.rule));
  say($("editor-note"), `In force since revision ${data.version}. A change is applied only if the rule has not changed in the meantime.`);
}

function lay({ isNew, id = edited.id }) {
  say($("editor-title"), isNew ? "New rule" : `Rule ${id}`);
  dialog.querySelector(".actions").hidden = edited.isLost;
  $("editor-id-line").hidden = !isNew;
  for (const name of ["editor-switch", "editor-delete"]) $(name).hidden = isNew;
  $("editor-try").hidden = isNew || edited.isCandidate;
  say($("editor-switch"), edited.mode === "off" ? "Switch on" : "Switch off");
  $("editor-reason").value = "";
  clear();
  acts.shown();
}

/** Open the editor for the rule *id*. */
export async function edit(id) {
  edited = { ...NEW, id, isLost: true };
  try {
    await load(id);
    lay({ isNew: false });
  } catch (error) {
    put("");
    say($("editor-note"), "");
    lay({ isNew: false });
    fill($("editor-findings"), failure(error));
  }
  open(dialog);
  area.focus();
  area.setSelectionRange(0, 0);
}

export function editNew() {
  edited = NEW;
  $("editor-id").value = "";
  put(START);
  say($("editor-note"), "The new rule is added at the end of the policy.");
  lay({ isNew: true });
  open(dialog);
  $("editor-id").focus();
}

/** True if the dialog may close: unapplied text needs a second attempt to close. */
function mayClose() {
  if (isWarned || area.value === before) return true;
  isWarned = true;
  fill($("editor-findings"), made("p", { class: "odd", text: "Your changes are not applied. Close again to discard them." }));
  return false;
}

export function startEditor(given) {
  acts = given;
  closing(dialog, mayClose);
  $("editor-form").addEventListener("submit", (event) => event.preventDefault());
  const buttons = { preview, apply, try: tryBeside, switch: switchIt, delete: remove };
  for (const [name, doing] of Object.entries(buttons)) $(`editor-${name}`).addEventListener("click", doing);
  area.addEventListener("input", () => { area.removeAttribute("aria-invalid"); isWarned = false; });
}
