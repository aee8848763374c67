// The nodes that share a store: what each of them reports.

import { $, Table, element, setChildren, setText, textColumn } from "./dom.js";
import { route } from "./routes.js";
import { count, duration, plural, rate } from "./words.js";

const STATES = { ok: ["healthy", "good"], failing: ["store failing", "warning"], open: ["circuit open", "bad"] };
const figure = (value, words) => (value === null || value === undefined ? "–" : words(value));

const table = new Table("Nodes that share the store", [
  { head: "Node", make: (cell) => cell.append(element("code"), " ", element("span", { class: "badge", text: "this node" })), show: (cell, row) => {
    setText(cell.firstChild, row.node);
    cell.lastChild.hidden = !row.isSelf;
  } },
  { head: "Store", kind: "mode", make: (cell) => cell.append(element("span")), show: (cell, row) => {
    const [text, level] = STATES[row.store] ?? ["unknown", ""];
    cell.firstChild.className = `badge ${level}`;
    setText(cell.firstChild, text);
  } },
  textColumn("Allowed/s", (row) => figure(row.allowed, rate), "number"),
  { head: "Denied/s", kind: "number", show: (cell, row) => {
    setText(cell, figure(row.denied, rate));
    cell.classList.toggle("is-denied", (row.denied ?? 0) > 0);
  } },
  textColumn("99 % within", (row) => figure(row.p99, duration), "number"),
  textColumn("Workers", (row) => figure(row.workers, count), "number"),
  textColumn("Revision", (row) => `${figure(row.revision, count)}${row.isOther ? ", other rules" : ""}`, "number"),
], { empty: "", cards: true });

export function startNodes() {
  setChildren($("nodes-table"), table.element);
}

export function showNodes(live) {
  const rows = (live.nodes ?? []).map((one) => ({ ...one, id: one.node, isSelf: one.node === live.node }));
  const own = rows.find((one) => one.isSelf);
  for (const row of rows) row.isOther = own !== undefined && row.digest !== null && row.digest !== own.digest;
  $("nodes").hidden = rows.length < 2 || !["overview", "health"].includes(route().page);
  const sum = (name) => rows.reduce((total, one) => total + (one[name] ?? 0), 0);
  setText($("nodes-lead"), `${plural(rows.length, "node")} share this store: together ${rate(sum("allowed"))} allowed and ${rate(sum("denied"))} denied per second. Each reports every 5 seconds; the rest of this page is about this node.`);
  table.show(rows);
}
