// The policy in force, its history and rollback.

import { $, Table, fill, made, say, text } from "./dom.js";
import { moment } from "./clock.js";
import { admin, changing } from "./api.js";
import { changeList, failure, previewed, sure } from "./findings.js";

const PAGE = 15;
let current = null;
let rows = [];
let before = null;
let acts = { changed() {}, shown() {} };

const table = new Table("History of the policy", [
  text("Revision", (row) => row.revision), text("When", (row) => moment(new Date(row.time))),
  text("Who", (row) => row.author, "key"), text("What", (row) => (row.note ? `${row.what} – ${row.note}` : row.what), "what"),
  { head: "Changes", make: (cell, row) => cell.append(made("button", { type: "button", "aria-label": `Show the changes of revision ${row.revision}`, text: "Show", onclick: () => look(row) })), show() {} },
  { head: "Roll back", make: (cell, row) => cell.append(made("button", { type: "button", "data-writes": true, "aria-label": `Roll back to revision ${row.revision}`, text: "Roll back", onclick: () => rollBack(row) }), made("span", { class: "note", text: "in force" })),
    show: (cell, row) => {
      const isCurrent = row.revision === current;
      cell.firstChild.hidden = isCurrent;
      cell.lastChild.hidden = !isCurrent;
    } },
], { empty: "No changes yet.", cards: true });

const more = made("button", { type: "button", text: "Older", hidden: true, onclick: () => load(before) });
const trouble = made("div");
const state = made("p", { class: "note" });

export function startHistory(given) {
  acts = given;
  fill($("policy-state"), state);
  fill($("history"), table.element, trouble, more);
}

/** Show a page of the history. True if it was read. */
async function load(from = null) {
  let isRead = false;
  try {
    const { data } = await admin("GET", `/history?limit=${PAGE}${from === null ? "" : `&before=${from}`}`);
    const found = data.revisions.map((one) => ({ ...one, id: one.revision }));
    rows = from === null ? found : [...rows, ...found];
    before = data.next_before;
    more.hidden = before === null;
    table.show(rows);
    fill(trouble);
    acts.shown();
    isRead = true;
  } catch (error) { fill(trouble, failure(error)); }
  table.element.hidden = !rows.length && trouble.hasChildNodes(); // a failed read is not an empty history
  return isRead;
}

/** Show the history for the policy as it is now: *status* is what `/status` says. True if it was read. */
export async function showHistory(status) {
  current = status.revision;
  say(state, `Revision ${status.revision ?? "–"} is in force, from ${status.place ?? "its source"}${status.loaded_at ? `, since ${moment(new Date(status.loaded_at))}` : ""}.`);
  return load();
}

async function look(row) {
  let content;
  try {
    const { data } = await admin("GET", `/history/${row.revision}`);
    content = data.changes ? changeList(data.changes) : made("p", { text: "The changes are not known, because the previous revision is no longer kept." });
  } catch (error) { content = failure(error); }
  const who = made("p", { class: "note", text: `${row.author}, ${moment(new Date(row.time))}: ${row.what}${row.note ? ` – ${row.note}` : ""}` });
  sure({ title: `Revision ${row.revision}`, content: [who, content], yes: "Close", hasReason: false, doing: async () => {} });
}

async function rollBack(row) {
  const version = current;
  let content;
  try {
    const { data } = await admin("GET", `/history/${row.revision}`);
    content = previewed((await admin("POST", "/policy:preview", { body: data.policy })).data);
  } catch (error) { content = failure(error); }
  sure({
    title: `Roll back to revision ${row.revision}?`,
    content: [made("p", { text: "This creates a new revision with the same policy. Counters keep their values." }), content],
    yes: "Roll back",
    doing: async (reason) => {
      await admin("POST", "/rollback", { body: { revision: row.revision }, headers: changing({ version, reason }) });
      acts.changed(`rolled back to revision ${row.revision}`);
    },
  });
}
