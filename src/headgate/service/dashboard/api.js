// Calls to the service, with the token of this tab if there is one.

const STORAGE_KEY = "headgate-admin-token";
const TIMEOUT_MS = 8_000;
let token = null;

/** A failed call: *status* is 0 if there was no response. */
export class ProblemError extends Error {
  constructor(status, message, data = null) {
    super(message);
    this.name = "ProblemError";
    this.status = status;
    this.data = data;
    this.errors = data?.errors ?? [];
  }
}

export const hasToken = () => token !== null;

export function setToken(text) {
  token = text.trim() || null;
  try {
    if (token === null) sessionStorage.removeItem(STORAGE_KEY);
    else sessionStorage.setItem(STORAGE_KEY, token);
  } catch { /* the browser forbids storage: the token is kept until the page is closed */ }
}

/** Move the token from the address bar to this tab, so that it is not visible or bookmarked. True if there was one. */
export function takeToken() {
  const match = /([#?&])token=([^&]*)&?/.exec(location.hash);
  if (!match) return false;
  const rest = location.hash.replace(match[0], match[1]).replace(/[#?&]$/, "");
  history.replaceState(null, "", location.pathname + location.search + rest);
  let text = match[2];
  try { text = decodeURIComponent(text); } catch { /* it is not encoded */ }
  setToken(text);
  return true;
}

/** Restore the token that this tab had before the page was reloaded. */
export function restoreToken() {
  try { token = sessionStorage.getItem(STORAGE_KEY); } catch { /* the browser forbids storage: there is no token */ }
}

/** Call the service. Returns `{status, data, headers}`; throws `ProblemError`. */
export async function request(method, path, { body, yaml, headers = {}, signal } = {}) {
  const sentHeaders = { ...headers };
  if (body !== undefined) sentHeaders["content-type"] = "application/json";
  if (yaml !== undefined) sentHeaders["content-type"] = "application/yaml";
  if (token !== null && path.startsWith("admin/")) sentHeaders.authorization = `Bearer ${token}`;
  const timeout = AbortSignal.timeout(TIMEOUT_MS);
  let reply;
  try {
    reply = await fetch(path, {
      method, headers: sentHeaders, body: yaml ?? (body === undefined ? undefined : JSON.stringify(body)), cache: "no-store",
      credentials: "same-origin", redirect: "error", signal: signal ? AbortSignal.any([signal, timeout]) : timeout,
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    const isHeaderInvalid = error instanceof TypeError && /header|ByteString/i.test(error.message);
    throw new ProblemError(0, isHeaderInvalid ? "a token or a reason has characters that cannot be sent" : "the service does not respond");
  }
  let data = null;
  try { data = await reply.json(); } catch { /* not JSON: only the status is known */ }
  if (!reply.ok) {
    const message = data?.detail || data?.title || `the service responded with ${reply.status}`;
    throw new ProblemError(reply.status, message, data);
  }
  return { status: reply.status, data, headers: reply.headers };
}

export const admin = (method, path, options) => request(method, `admin/v1${path}`, options);

/** The headers of a change: its base version and its reason. Throws `ProblemError`. */
export function changeHeaders({ version, isNew, reason }) {
  const headers = {};
  if (version !== undefined && version !== null) headers["if-match"] = `"${version}"`;
  if (isNew) headers["if-none-match"] = "*";
  const note = (reason ?? "").trim();
  if (/[^\x20-\x7e\xa0-\xff]/.test(note)) throw new ProblemError(0, "the reason may contain only Latin-1 characters");
  if (note) headers["x-change-note"] = note;
  return headers;
}
