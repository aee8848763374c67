// Keys: the busiest, the most denied, the hot ones; hashed or clear, as the service is configured.

import { $, Table, codes, fill, made, say, text } from "./dom.js";
import { rate } from "./words.js";

const tableOf = (caption, empty) => new Table(caption, [
  codes("Key", (row) => row.key, "key"), codes("Rule", (row) => `${row.rule_id ?? ""}${row.isShadow ? " (shadow)" : ""}`),
  text("/s", (row) => rate(row.per_second), "number"),
], { empty });

const tables = {
  busiest_keys: ["busiest", tableOf("The busiest keys", "No recent requests.")],
  refused_keys: ["refused", tableOf("The most denied keys", "No recent denials.")],
  hot_keys: ["hot", tableOf("The keys with the most store calls", "No recent calls, or the store is in this process.")],
};

const FEW = 8;
const open = new Set();
let last = null;

export function startKeys() {
  for (const [name, [place, table]] of Object.entries(tables)) {
    table.more = made("button", { type: "button", class: "plain", hidden: true, onclick: () => { open.add(name); showKeys(last); } });
    fill($(place), table.element, table.more);
  }
}

export function showKeys(live) {
  last = live;
  // A shadow rule denies no request, so it is marked.
  const shadows = new Set((live.rules ?? []).filter((one) => one.mode === "shadow").map((one) => one.rule_id));
  for (const [name, [, table]] of Object.entries(tables)) {
    const seen = new Map();
    for (const one of live[name] ?? []) seen.set(JSON.stringify([one.rule_id, one.key]), one);
    const rows = [...seen].map(([id, one]) => ({ ...one, id, isShadow: shadows.has(one.rule_id) }));
    const shown = open.has(name) ? rows : rows.slice(0, FEW);
    table.show(shown);
    table.more.hidden = shown.length === rows.length;
    say(table.more, `Show all ${rows.length}`);
  }
}
