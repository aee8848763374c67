// Keys: the busiest, the most denied, the hot ones; hashed or clear, as the service is configured.

import { $, Table, element, keyColumn, setChildren, setText, textColumn } from "./dom.js";
import { hrefOf, route } from "./routes.js";
import { rate } from "./words.js";

const tableOf = (caption, empty) => new Table(caption, [
  keyColumn("Key", (row) => row.key),
  { head: "Rule", make: (cell) => cell.append(element("a")), show: (cell, row) => {
    setText(cell.firstChild, `${row.rule_id ?? ""}${row.isShadow ? " (shadow)" : ""}`);
    cell.firstChild.setAttribute("href", hrefOf("rules", row.rule_id ?? ""));
  } },
  textColumn("/s", (row) => rate(row.per_second), "number"),
], { empty });

const tables = {
  busiest_keys: ["busiest", tableOf("The busiest keys", "No recent requests.")],
  refused_keys: ["most-denied", tableOf("The most denied keys", "No recent denials.")],
  hot_keys: ["hot", tableOf("The keys with the most store calls", "No recent calls, or the store is in this process.")],
};

const MAX_ROWS = 8;
const expanded = new Set();
let last = null; // live data, or that of the rule whose page is open
let shadows = new Set();

export function startKeys() {
  for (const [name, [place, table]] of Object.entries(tables)) {
    table.more = element("button", { type: "button", class: "plain", hidden: true, onclick: () => { expanded.add(name); show(last); } });
    setChildren($(place), table.element, table.more);
  }
}

/** The keys of all rules, except on the page of one. */
export function showKeys(live) {
  // A shadow rule denies no request, so it is marked.
  shadows = new Set((live.rules ?? []).filter((one) => one.mode === "shadow").map((one) => one.rule_id));
  if (route().page !== "rule") show(live);
}

/** The keys of *rule*, of which *data* has more than those of all rules. */
export function showKeysOf(rule, data) {
  if (route().page === "rule" && route().name === rule) show(data);
}

function show(data) {
  last = data;
  $("hot-part").hidden = !data.hot_keys;
  for (const [name, [, table]] of Object.entries(tables)) {
    const unique = new Map();
    for (const one of data[name] ?? []) unique.set(JSON.stringify([one.rule_id, one.key]), one);
    const rows = [...unique].map(([id, one]) => ({ ...one, id, isShadow: shadows.has(one.rule_id) }));
    const visible = expanded.has(name) ? rows : rows.slice(0, MAX_ROWS);
    table.show(visible);
    table.more.hidden = visible.length === rows.length;
    setText(table.more, `Show all ${rows.length}`);
  }
}
