// The search over rules and callers, at the top of each page.

import { $, code, element, setChildren, setText, shortKey } from "./dom.js";
import { failure } from "./findings.js";
import { findCaller, partsOfRules } from "./caller.js";
import { hrefOf, openPage, route } from "./routes.js";
import { matchingRules } from "./rules.js";
import { limitWords, plural } from "./words.js";

const MAX_RULES = 20;
const MAX_KEYS = 20;
let lastLive = null;
let shown = null;

export function startSearch() {
  $("search-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const text = $("search").value.trim();
    if (text) openPage("search", "", { q: text });
  });
}

export function showSearch(live = lastLive) {
  lastLive = live;
  if (route().page !== "search") return;
  const text = route().query.get("q") ?? "";
  if (shown !== text) $("search").value = text;
  shown = text;
  setText($("results-title"), `Results for “${text}”`);
  const rules = matchingRules(text);
  const keys = new Map(["busiest_keys", "refused_keys", "hot_keys"].flatMap((name) => live?.[name] ?? []).filter((one) => one.key.toLowerCase().includes(text.toLowerCase())).map((one) => [one.key, one]));
  const version = JSON.stringify([text, rules.map((row) => [row.id, Boolean(row.rule)]), [...keys.keys()], partsOfRules()]);
  if ($("results").dataset.version === version) return;
  $("results").dataset.version = version;
  const list = (items) => element("ul", { class: "results" }, ...items);
  const more = rules.length > MAX_RULES ? element("p", {}, element("a", { href: hrefOf("rules", "", { q: text }), text: `All ${rules.length} rules` })) : null;
  setChildren($("results"),
    element("h3", { text: rules.length ? plural(rules.length, "rule") : "No rule has this text" }),
    list(rules.slice(0, MAX_RULES).map((row) => element("li", {}, element("a", { href: hrefOf("rules", row.id), text: row.id }), element("span", { class: "sub", text: ` ${row.rule ? limitWords(row.rule) : ""}` })))), more,
    element("h3", { text: keys.size ? `${plural(keys.size, "caller")} among the busy ones` : "No busy caller has this text" }),
    list([...keys.values()].slice(0, MAX_KEYS).map((one) => element("li", {}, element("a", { href: hrefOf("callers", one.key) }, code(shortKey(one.key)))))),
    element("h3", { text: "Look it up as a caller" }),
    element("div", { class: "line tight" }, ...partsOfRules().map((name) => element("button", { type: "button", text: name === "ip" ? "Address" : name, onclick: () => lookUp(name, text) }))),
    element("div", { id: "results-error", role: "alert" }));
}

async function lookUp(name, text) {
  try { await findCaller({ [name]: text }); } catch (error) { setChildren($("results-error"), failure(error)); }
}
