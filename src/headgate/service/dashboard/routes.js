// The address: `#/rules/login?range=1h` is the page "rule" of "login". It can be shared: it has no token.

const PAGES = new Set(["overview", "rules", "callers", "health", "policy", "explain", "search"]);
const DETAILS = new Map([["rules", "rule"], ["callers", "caller"]]);
const RANGES = ["5m", "1h", "6h", "24h"];
let listener = () => {};
let current = parse(location.hash);

function decoded(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}

function parse(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?");
  const [first, ...rest] = path.split("/");
  const name = decoded(rest.join("/"));
  const page = PAGES.has(first) ? first : "overview";
  const parts = new URLSearchParams(query);
  parts.delete("token"); // it is taken by the page, and never written to an address again
  return { page: name && DETAILS.has(page) ? DETAILS.get(page) : page, name, query: parts };
}

/** The page that is open: `{page, name, query}`. */
export const route = () => current;

/** The time range of the page that is open. */
export const range = () => (RANGES.includes(current.query.get("range")) ? current.query.get("range") : RANGES[0]);

/** The address of a page, or of the rule or caller *name*. The time range stays. */
export function hrefOf(page, name = "", query = {}) {
  const given = new URLSearchParams(query);
  if (range() !== RANGES[0] && !given.has("range") && ["overview", "rules"].includes(page)) given.set("range", range());
  return `#/${page}${name ? `/${encodeURIComponent(name)}` : ""}${given.size ? `?${given}` : ""}`;
}

export function openPage(page, name, query) {
  location.hash = hrefOf(page, name, query);
}

/** Change the query of this page, without a new entry in the history of the browser; null removes a part. */
export function setQuery(changes) {
  for (const [name, value] of Object.entries(changes)) {
    if (value) current.query.set(name, value);
    else current.query.delete(name);
  }
  const query = String(current.query);
  const path = location.hash.split("?")[0] || "#/";
  history.replaceState(null, "", `${location.pathname}${location.search}${path}${query ? `?${query}` : ""}`);
  listener({ isNewPage: false });
}

/** Call *callback* with `{isNewPage}` whenever the address changes. */
export function onRoute(callback) {
  listener = callback;
  addEventListener("hashchange", () => {
    if (location.hash && !location.hash.startsWith("#/")) return; // a place within the page
    current = parse(location.hash);
    callback({ isNewPage: true });
  });
}
