// Polls the service once a second, except while the page is hidden. The pause grows while the service
// does not respond.

import { admin, hasToken, request } from "./api.js";

const INTERVAL_MS = 1_000;
const MAX_PAUSE_MS = 15_000;
const READINESS_INTERVAL_MS = 2_000;

/** Calls `onLive(data)` with each response, `onReadiness(readiness)`, `onAccess(kind, message)` with
 * the access (`open`, `locked`, `closed`), and `onOutage({pause, since, message, status})` while there
 * is no usable response. */
export class Connection {
  #callbacks;
  #timer = null;
  #failures = 0;
  #since = null;
  #error = {};
  #isPolling = false;
  #isPollRequested = false;
  #readinessAt = -READINESS_INTERVAL_MS;
  #isAccessDenied = false;

  constructor(callbacks) {
    this.#callbacks = callbacks;
    document.addEventListener("visibilitychange", () => {
      clearTimeout(this.#timer);
      if (!document.hidden) this.pollNow();
    });
  }

  /** Poll now: at the start, with another token, after a change. */
  pollNow() {
    clearTimeout(this.#timer);
    this.#isPollRequested = false;
    if (this.#isPolling) this.#isPollRequested = true;
    else this.#poll();
  }

  async #poll() {
    this.#isPolling = true;
    try {
      await this.#readiness();
      await this.#live();
      this.#failures = 0;
      this.#since = null;
    } catch (error) {
      if (!this.#handle(error)) throw error;
    } finally {
      this.#isPolling = false;
      if (!document.hidden || this.#isPollRequested) this.#schedule();
    }
  }

  #schedule() {
    const pause = this.#failures ? Math.min(MAX_PAUSE_MS, INTERVAL_MS * 2 ** (this.#failures - 1)) : INTERVAL_MS;
    if (this.#failures) this.#callbacks.onOutage({ pause: pause / 1000, since: this.#since, ...this.#error });
    this.#timer = setTimeout(() => this.#poll(), this.#isPollRequested ? 0 : pause);
    this.#isPollRequested = false;
  }

  async #readiness() {
    if (performance.now() - this.#readinessAt < READINESS_INTERVAL_MS && !this.#failures) return;
    let readiness;
    try {
      readiness = { isReady: true, ...(await request("GET", "readyz")).data };
    } catch (error) {
      if (error.status !== 503) throw error;
      readiness = { isReady: false, reasons: error.data?.reasons ?? [error.message] };
    }
    this.#readinessAt = performance.now();
    this.#callbacks.onReadiness(readiness);
  }

  async #live() {
    if (this.#isAccessDenied) return;
    const { data } = await admin("GET", "/live");
    this.#callbacks.onAccess("open", "");
    this.#callbacks.onLive(data);
  }

  /** Poll again after the token has changed. */
  retryAccess() {
    this.#isAccessDenied = false;
    this.pollNow();
  }

  /** Record a failed call. False if *error* is of another kind. */
  #handle(error) {
    if (error.name !== "ProblemError") return false;
    if (error.status === 401 || error.status === 403 || error.status === 404) {
      this.#isAccessDenied = true;
      const isClosed = error.status === 404 || (error.status === 403 && !hasToken()) || /closed/.test(error.message);
      this.#callbacks.onAccess(isClosed ? "closed" : "locked", error.status === 404 ? "" : error.message);
      this.#failures = 0;
      return true;
    }
    this.#failures += 1;
    this.#isAccessDenied = false; // access may differ after a restart
    this.#since ??= new Date();
    this.#error = { message: error.message, status: error.status };
    return true;
  }
}
