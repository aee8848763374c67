// "Explain this request": the rules that apply, their counters and their decisions.

import { $, code, element, scrollable, setChildren, setText, shortKey } from "./dom.js";
import { ProblemError, admin } from "./api.js";
import { failure } from "./findings.js";
import { hrefOf, route, setQuery } from "./routes.js";
import { count, duration, plainText, plural } from "./words.js";

/** Lines "name: value" as an object; the values of a repeated name are joined with a comma. */
function headersOf(text) {
  const headers = {};
  for (const [index, line] of text.split("\n").entries()) {
    if (!line.trim()) continue;
    const at = line.indexOf(":");
    if (at < 1) throw new ProblemError(0, `line ${index + 1} of the headers is invalid: expected “name: value”`);
    const name = line.slice(0, at).trim().toLowerCase();
    const value = line.slice(at + 1).trim();
    headers[name] = Object.hasOwn(headers, name) ? `${headers[name]}, ${value}` : value;
  }
  return headers;
}

function limitsCell(rule) {
  const cell = element("td", { role: "cell", "data-head": "Limits" });
  for (const limit of rule.limits ?? []) {
    const figures = [`${count(limit.remaining)} left`];
    if (limit.retry_after) figures.push(`retry in ${duration(limit.retry_after)}`);
    else if (limit.reset_after) figures.push(`fully reset in ${duration(limit.reset_after)}`);
    cell.append(element("div", {}, code(limit.limit), ` ${figures.join(", ")}`));
  }
  return cell;
}

function ruleRow(rule) {
  const verdict = rule.denies ? "denies" : rule.allowed ? "allows" : "would deny";
  const kind = rule.denies ? "bad" : rule.allowed ? "good" : "warning";
  return element("tr", { role: "row" },
    element("th", { scope: "row", role: "rowheader" }, element("a", { href: hrefOf("rules", rule.rule_id), text: rule.rule_id })),
    element("td", { role: "cell", "data-head": "Says" }, element("span", { class: `badge ${kind}`, text: verdict })),
    element("td", { role: "cell", "data-head": "Mode", text: rule.mode ?? "" }),
    element("td", { role: "cell", class: "key", "data-head": "Counter" }, rule.key ? element("a", { href: hrefOf("callers", rule.key), title: rule.key }, code(shortKey(rule.key))) : "–"),
    element("td", { role: "cell", class: "number", "data-head": "Cost", text: rule.cost ?? "" }),
    limitsCell(rule),
    element("td", { role: "cell", "data-head": "Source", text: rule.source ?? "" }));
}

/** The parts of the page that show *explanation*. */
function explanationParts(explanation) {
  const lead = explanation.allowed ? "The request would be allowed." : "The request would be denied.";
  const denying = (explanation.rules ?? []).filter((one) => one.denies).map((one) => one.rule_id);
  $("explain-lead").className = explanation.allowed ? "good lead" : "bad lead";
  setText($("explain-lead"), denying.length ? `${lead} Denied by ${denying.join(", ")}.` : lead);
  const parts = [];
  const identity = Object.entries(explanation.identity ?? {}).filter(([, value]) => value !== null && value !== "");
  const facts = [`Revision ${explanation.revision ?? "–"}`, explanation.priority ? `class ${explanation.priority}` : "", explanation.source ? `source ${explanation.source}` : ""].filter(Boolean);
  parts.push(element("p", { class: "note", text: facts.join(" · ") }));
  if (identity.length) parts.push(element("p", {}, "Caller: ", code(identity.map(([name, value]) => `${name} = ${plainText(value)}`).join(", "))));
  if (explanation.rules?.length) {
    const heads = ["Rule", "Says", "Mode", "Counter", "Cost", "Limits", "Source"].map((head) => element("th", { scope: "col", role: "columnheader", text: head }));
    parts.push(scrollable("Rules that apply",
      element("table", { role: "table", class: "cards" }, element("thead", { role: "rowgroup" }, element("tr", { role: "row" }, ...heads)),
        element("tbody", { role: "rowgroup" }, ...explanation.rules.map(ruleRow)))));
  } else parts.push(element("p", { text: "No rule applies." }));
  if (explanation.not_applied?.length) {
    parts.push(element("details", {}, element("summary", { text: `Why ${plural(explanation.not_applied.length, "other rule does", "other rules do")} not apply` }),
      element("ul", { class: "findings" }, ...explanation.not_applied.map((one) => element("li", {}, code(one.rule_id), `: ${one.why}`)))));
  }
  return parts;
}

const SHARED = ["method", "path", "ip"]; // headers may be secrets

/** Fill the form as the address says. */
export function showExplainRoute() {
  const { page, query } = route();
  if (page !== "explain") return;
  for (const name of SHARED) if (query.get(name)) $(`explain-${name}`).value = query.get(name);
}

export function startExplain() {
  $("explain-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const fields = new FormData(event.target);
    setQuery(Object.fromEntries(SHARED.map((name) => [name, fields.get(name).trim()])));
    try {
      const body = { method: fields.get("method"), path: fields.get("path"), ip: fields.get("ip").trim() || "127.0.0.1", headers: headersOf(fields.get("headers")) };
      setChildren($("explained"), ...explanationParts((await admin("POST", "/explain", { body })).data));
    } catch (error) {
      setText($("explain-lead"), "");
      setChildren($("explained"), failure(error));
    }
  });
}
