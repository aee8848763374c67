// Keys: the busiest, the most denied, the hot ones; hashed or clear, as the service is configured.

import { $, Table, codeColumn, element, setChildren, setText, textColumn } from "./dom.js";
import { rate } from "./words.js";

const tableOf = (caption, empty) => new Table(caption, [
  codeColumn("Key", (row) => row.key, "key"), codeColumn("Rule", (row) => `${row.rule_id ?? ""}${row.isShadow ? " (shadow)" : ""}`),
  textColumn("/s", (row) => rate(row.per_second), "number"),
], { empty });

const tables = {
  busiest_keys: ["busiest", tableOf("The busiest keys", "No recent requests.")],
  refused_keys: ["most-denied", tableOf("The most denied keys", "No recent denials.")],
  hot_keys: ["hot", tableOf("The keys with the most store calls", "No recent calls, or the store is in this process.")],
};

const MAX_ROWS = 8;
const expanded = new Set();
let lastLive = null;

export function startKeys() {
  for (const [name, [place, table]] of Object.entries(tables)) {
    table.more = element("button", { type: "button", class: "plain", hidden: true, onclick: () => { expanded.add(name); showKeys(lastLive); } });
    setChildren($(place), table.element, table.more);
  }
}

export function showKeys(live) {
  lastLive = live;
  // A shadow rule denies no request, so it is marked.
  const shadows = new Set((live.rules ?? []).filter((one) => one.mode === "shadow").map((one) => one.rule_id));
  for (const [name, [, table]] of Object.entries(tables)) {
    const unique = new Map();
    for (const one of live[name] ?? []) unique.set(JSON.stringify([one.rule_id, one.key]), one);
    const rows = [...unique].map(([id, one]) => ({ ...one, id, isShadow: shadows.has(one.rule_id) }));
    const visible = expanded.has(name) ? rows : rows.slice(0, MAX_ROWS);
    table.show(visible);
    table.more.hidden = visible.length === rows.length;
    setText(table.more, `Show all ${rows.length}`);
  }
}
