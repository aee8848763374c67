// Calls to the service, with the token of this tab if there is one.

const KEPT = "headgate-admin-token";
const LONGEST_WAIT = 8_000;
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

export function keepToken(text) {
  token = text.trim() || null;
  try {
    if (token === null) sessionStorage.removeItem(KEPT);
    else sessionStorage.setItem(KEPT, token);
  } catch { /* storage is forbidden here: it is kept as long as the page */ }
}

/** Move the token from the address bar to this tab, so that it is not visible or bookmarked. True if there was one. */
export function takeToken() {
  const found = /^#(?:.*&)?token=([^&]*)/.exec(location.hash);
  if (!found) return false;
  history.replaceState(null, "", location.pathname + location.search);
  let given = found[1];
  try { given = decodeURIComponent(given); } catch { /* it is not encoded */ }
  keepToken(given);
  return true;
}

/** The token that this tab had before the page was reloaded. */
export function restoreToken() {
  try { token = sessionStorage.getItem(KEPT); } catch { /* storage is forbidden here: there is none */ }
}

/** What the service says: `{status, data, headers}`. Raises `ProblemError`. */
export async function ask(method, path, { body, headers = {}, signal } = {}) {
  const sent = { ...headers };
  if (body !== undefined) sent["content-type"] = "application/json";
  if (token !== null && path.startsWith("admin/")) sent.authorization = `Bearer ${token}`;
  const late = AbortSignal.timeout(LONGEST_WAIT);
  let reply;
  try {
    reply = await fetch(path, {
      method, headers: sent, body: body === undefined ? undefined : JSON.stringify(body), cache: "no-store",
      credentials: "same-origin", redirect: "error", signal: signal ? AbortSignal.any([signal, late]) : late,
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    const bad = error instanceof TypeError && /header|ByteString/i.test(error.message);
    throw new ProblemError(0, bad ? "a token or a reason has characters that cannot be sent" : "the service does not respond");
  }
  let data = null;
  try { data = await reply.json(); } catch { /* not JSON: only the status is known */ }
  if (!reply.ok) {
    const told = data?.detail || data?.title || `the service responded with ${reply.status}`;
    throw new ProblemError(reply.status, told, data);
  }
  return { status: reply.status, data, headers: reply.headers };
}

export const admin = (method, path, options) => ask(method, `admin/v1${path}`, options);

/** The headers of a change: its base version and its reason. Raises `ProblemError`. */
export function changing({ version, isNew, reason }) {
  const headers = {};
  if (version !== undefined && version !== null) headers["if-match"] = `"${version}"`;
  if (isNew) headers["if-none-match"] = "*";
  const why = (reason ?? "").trim();
  if (/[^\x20-\x7e\xa0-\xff]/.test(why)) throw new ProblemError(0, "the reason may contain only Latin-1 characters");
  if (why) headers["x-change-note"] = why;
  return headers;
}
