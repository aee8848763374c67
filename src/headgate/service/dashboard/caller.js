// The limits of a caller; needs no token.

import { $, code, fill, made, wide } from "./dom.js";
import { ask } from "./api.js";
import { failure } from "./findings.js";
import { count } from "./words.js";

function line(one) {
  const meter = made("meter", { min: 0, max: one.quota, value: one.remaining, "aria-label": `${count(one.remaining)} of ${count(one.quota)} left` });
  const where = `${(one.methods ?? []).join(" ")} ${(one.endpoints ?? ["everywhere"]).join(" ")}`.trim();
  return made("tr", {}, made("th", { scope: "row" }, code(one.name)),
    made("td", { text: `${count(one.remaining)} of ${count(one.quota)}` }), made("td", {}, meter), made("td", {}, code(where)), made("td", { text: one.limit }));
}

function shown(limits) {
  if (!limits.length) return made("p", { text: "No limit applies to this caller." });
  const heads = ["Rule", "Left", "", "For", "Limit"].map((head) => (head ? made("th", { scope: "col", text: head }) : made("td")));
  return wide("What this caller has left",
    made("table", {}, made("thead", {}, made("tr", {}, ...heads)), made("tbody", {}, ...limits.map(line))));
}

export function startCaller() {
  $("caller-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const given = new FormData(event.target);
    const headers = {};
    if (given.get("key")) headers["x-api-key"] = given.get("key");
    if (given.get("user")) headers["x-user-id"] = given.get("user");
    const body = { path: "/", ip: given.get("ip").trim() || "127.0.0.1", headers };
    try {
      fill($("limits"), shown((await ask("POST", "v1/rate_limit", { body })).data.limits));
    } catch (error) { fill($("limits"), failure(error)); }
  });
}
