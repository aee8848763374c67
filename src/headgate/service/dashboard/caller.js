// The limits of a caller; needs no token.

import { $, code, element, scrollable, setChildren } from "./dom.js";
import { request } from "./api.js";
import { failure } from "./findings.js";
import { count } from "./words.js";

function limitRow(limit) {
  const meter = element("meter", { min: 0, max: limit.quota, value: limit.remaining, "aria-label": `${count(limit.remaining)} of ${count(limit.quota)} left` });
  const where = `${(limit.methods ?? []).join(" ")} ${(limit.endpoints ?? ["everywhere"]).join(" ")}`.trim();
  return element("tr", {}, element("th", { scope: "row" }, code(limit.name)),
    element("td", { text: `${count(limit.remaining)} of ${count(limit.quota)}` }), element("td", {}, meter), element("td", {}, code(where)), element("td", { text: limit.limit }));
}

function limitTable(limits) {
  if (!limits.length) return element("p", { text: "No limit applies to this caller." });
  const heads = ["Rule", "Left", "", "For", "Limit"].map((head) => (head ? element("th", { scope: "col", text: head }) : element("td")));
  return scrollable("What this caller has left",
    element("table", {}, element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...limits.map(limitRow))));
}

export function startCaller() {
  $("caller-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const fields = new FormData(event.target);
    const headers = {};
    if (fields.get("key")) headers["x-api-key"] = fields.get("key");
    if (fields.get("user")) headers["x-user-id"] = fields.get("user");
    const body = { path: "/", ip: fields.get("ip").trim() || "127.0.0.1", headers };
    try {
      setChildren($("limits"), limitTable((await request("POST", "v1/rate_limit", { body })).data.limits));
    } catch (error) { setChildren($("limits"), failure(error)); }
  });
}
