// The policy in force, its history and rollback.

import { $, Table, element, setChildren, setText, textColumn } from "./dom.js";
import { moment } from "./clock.js";
import { admin, changeHeaders } from "./api.js";
import { changeList, confirmAction, failure, previewDetails } from "./findings.js";

const PAGE = 15;
let currentRevision = null;
let rows = [];
let nextBefore = null;
let callbacks = { reportChange() {}, lockButtons() {} };

const table = new Table("History of the policy", [
  textColumn("Revision", (row) => row.revision), textColumn("When", (row) => moment(new Date(row.time))),
  textColumn("Who", (row) => row.author, "key"), textColumn("What", (row) => (row.note ? `${row.what} – ${row.note}` : row.what), "what"),
  { head: "Changes", make: (cell, row) => cell.append(element("button", { type: "button", "aria-label": `Show the changes of revision ${row.revision}`, text: "Show", onclick: () => showRevision(row) })), show() {} },
  { head: "Roll back", make: (cell, row) => cell.append(element("button", { type: "button", "data-writes": true, "aria-label": `Roll back to revision ${row.revision}`, text: "Roll back", onclick: () => rollBack(row) }), element("span", { class: "note", text: "in force" })),
    show: (cell, row) => {
      const isCurrent = row.revision === currentRevision;
      cell.firstChild.hidden = isCurrent;
      cell.lastChild.hidden = !isCurrent;
    } },
], { empty: "No changes yet.", cards: true });

const more = element("button", { type: "button", text: "Older", hidden: true, onclick: () => loadPage(nextBefore) });
const errorPlace = element("div");
const state = element("p", { class: "note" });

export function startHistory(pageCallbacks) {
  callbacks = pageCallbacks;
  setChildren($("policy-state"), state);
  setChildren($("history"), table.element, errorPlace, more);
}

/** Show a page of the history. True if it was read. */
async function loadPage(from = null) {
  let isRead = false;
  try {
    const { data } = await admin("GET", `/history?limit=${PAGE}${from === null ? "" : `&before=${from}`}`);
    const page = data.revisions.map((one) => ({ ...one, id: one.revision }));
    rows = from === null ? page : [...rows, ...page];
    nextBefore = data.next_before;
    more.hidden = nextBefore === null;
    table.show(rows);
    setChildren(errorPlace);
    callbacks.lockButtons();
    isRead = true;
  } catch (error) { setChildren(errorPlace, failure(error)); }
  table.element.hidden = !rows.length && errorPlace.hasChildNodes(); // a failed read is not an empty history
  return isRead;
}

/** Show the history of the policy; *status* is the reply of `/status`. True if it was read. */
export async function showHistory(status) {
  currentRevision = status.revision;
  setText(state, `Revision ${status.revision ?? "–"} is in force, from ${status.place ?? "its source"}${status.loaded_at ? `, since ${moment(new Date(status.loaded_at))}` : ""}.`);
  return loadPage();
}

export async function showRevision(row) {
  let content;
  try {
    const { data } = await admin("GET", `/history/${row.revision}`);
    content = data.changes ? changeList(data.changes) : element("p", { text: "The changes are not known, because the previous revision is no longer kept." });
  } catch (error) { content = failure(error); }
  const who = element("p", { class: "note", text: `${row.author}, ${moment(new Date(row.time))}: ${row.what}${row.note ? ` – ${row.note}` : ""}` });
  confirmAction({ title: `Revision ${row.revision}`, content: [who, content], label: "Close", hasReason: false, action: async () => {} });
}

async function rollBack(row) {
  const version = currentRevision;
  let content;
  try {
    const { data } = await admin("GET", `/history/${row.revision}`);
    content = previewDetails((await admin("POST", "/policy:preview", { body: data.policy })).data);
  } catch (error) { content = failure(error); }
  confirmAction({
    title: `Roll back to revision ${row.revision}?`,
    content: [element("p", { text: "This creates a new revision with the same policy. Counters keep their values." }), content],
    label: "Roll back",
    action: async (reason) => {
      await admin("POST", "/rollback", { body: { revision: row.revision }, headers: changeHeaders({ version, reason }) });
      callbacks.reportChange(`rolled back to revision ${row.revision}`);
    },
  });
}
