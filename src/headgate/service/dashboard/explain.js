// "Explain this request": the rules that apply, their counters and their decisions.

import { $, code, fill, made, say, wide } from "./dom.js";
import { ProblemError, admin } from "./api.js";
import { failure } from "./findings.js";
import { count, lasting, plain, plural } from "./words.js";

/** Lines "name: value" as an object; the values of a repeated name are joined with a comma. */
export function headersOf(written) {
  const found = {};
  for (const [index, line] of written.split("\n").entries()) {
    if (!line.trim()) continue;
    const at = line.indexOf(":");
    if (at < 1) throw new ProblemError(0, `line ${index + 1} of the headers is invalid: expected “name: value”`);
    const name = line.slice(0, at).trim().toLowerCase();
    const value = line.slice(at + 1).trim();
    found[name] = Object.hasOwn(found, name) ? `${found[name]}, ${value}` : value;
  }
  return found;
}

function limitsOf(one) {
  const cell = made("td", { role: "cell", "data-head": "Limits" });
  for (const limit of one.limits ?? []) {
    const told = [`${count(limit.remaining)} left`];
    if (limit.retry_after) told.push(`retry in ${lasting(limit.retry_after)}`);
    else if (limit.reset_after) told.push(`fully reset in ${lasting(limit.reset_after)}`);
    cell.append(made("div", {}, code(limit.limit), ` ${told.join(", ")}`));
  }
  return cell;
}

function line(one) {
  const says = one.denies ? "denies" : one.allowed ? "allows" : "would deny";
  const kind = one.denies ? "bad" : one.allowed ? "good" : "odd";
  return made("tr", { role: "row" },
    made("th", { scope: "row", role: "rowheader" }, code(one.rule_id)),
    made("td", { role: "cell", "data-head": "Says" }, made("span", { class: `badge ${kind}`, text: says })),
    made("td", { role: "cell", "data-head": "Mode", text: one.mode ?? "" }),
    made("td", { role: "cell", class: "key", "data-head": "Counter" }, code(one.key ?? "–")),
    made("td", { role: "cell", class: "number", "data-head": "Cost", text: one.cost ?? "" }),
    limitsOf(one),
    made("td", { role: "cell", "data-head": "Source", text: one.source ?? "" }));
}

function shown(told) {
  const lead = told.allowed ? "The request would be allowed." : "The request would be denied.";
  const denying = (told.rules ?? []).filter((one) => one.denies).map((one) => one.rule_id);
  $("explain-lead").className = told.allowed ? "good lead" : "bad lead";
  say($("explain-lead"), denying.length ? `${lead} Denied by ${denying.join(", ")}.` : lead);
  const parts = [];
  const known = Object.entries(told.identity ?? {}).filter(([, value]) => value !== null && value !== "");
  const facts = [`Revision ${told.revision ?? "–"}`, told.priority ? `class ${told.priority}` : "", told.source ? `source ${told.source}` : ""].filter(Boolean);
  parts.push(made("p", { class: "note", text: facts.join(" · ") }));
  if (known.length) parts.push(made("p", {}, "Caller: ", code(known.map(([name, value]) => `${name} = ${plain(value)}`).join(", "))));
  if (told.rules?.length) {
    const heads = ["Rule", "Says", "Mode", "Counter", "Cost", "Limits", "Source"].map((head) => made("th", { scope: "col", role: "columnheader", text: head }));
    parts.push(wide("Rules that apply",
      made("table", { role: "table", class: "cards" }, made("thead", { role: "rowgroup" }, made("tr", { role: "row" }, ...heads)),
        made("tbody", { role: "rowgroup" }, ...told.rules.map(line)))));
  } else parts.push(made("p", { text: "No rule applies." }));
  if (told.not_applied?.length) {
    parts.push(made("details", {}, made("summary", { text: `Why ${plural(told.not_applied.length, "other rule does", "other rules do")} not apply` }),
      made("ul", { class: "findings" }, ...told.not_applied.map((one) => made("li", {}, code(one.rule_id), `: ${one.why}`)))));
  }
  return parts;
}

export function startExplain() {
  $("explain-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const given = new FormData(event.target);
    try {
      const body = { method: given.get("method"), path: given.get("path"), ip: given.get("ip").trim() || "127.0.0.1", headers: headersOf(given.get("headers")) };
      fill($("explained"), ...shown((await admin("POST", "/explain", { body })).data));
    } catch (error) {
      say($("explain-lead"), "");
      fill($("explained"), failure(error));
    }
  });
}
