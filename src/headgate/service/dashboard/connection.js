// Polls the service once a second: not while the page is hidden, and with growing pauses while it
// does not respond.

import { admin, ask, hasToken } from "./api.js";

const EVERY = 1_000;
const LONGEST_PAUSE = 15_000;
const READINESS_EVERY = 2_000;

/** Calls `live(data)` with each response, `ready(told)` with the readiness, `access(kind, message)`
 * when the access changes (`open`, `locked`, `closed`), `gone({pause, since, told, status})` while
 * there is no usable response. */
export class Connection {
  #hears;
  #timer = null;
  #failures = 0;
  #since = null;
  #told = {};
  #isAsking = false;
  #isWaiting = false;
  #asked = -READINESS_EVERY;
  #isShut = false;

  constructor(hears) {
    this.#hears = hears;
    document.addEventListener("visibilitychange", () => {
      clearTimeout(this.#timer);
      if (!document.hidden) this.again();
    });
  }

  /** Poll now: at the start, with another token, after a change. */
  again() {
    clearTimeout(this.#timer);
    this.#isWaiting = false;
    if (this.#isAsking) this.#isWaiting = true;
    else this.#turn();
  }

  async #turn() {
    this.#isAsking = true;
    try {
      await this.#readiness();
      await this.#live();
      this.#failures = 0;
      this.#since = null;
    } catch (error) {
      if (!this.#understands(error)) throw error;
    } finally {
      this.#isAsking = false;
      if (!document.hidden || this.#isWaiting) this.#next();
    }
  }

  #next() {
    const pause = this.#failures ? Math.min(LONGEST_PAUSE, EVERY * 2 ** (this.#failures - 1)) : EVERY;
    if (this.#failures) this.#hears.gone({ pause: pause / 1000, since: this.#since, ...this.#told });
    this.#timer = setTimeout(() => this.#turn(), this.#isWaiting ? 0 : pause);
    this.#isWaiting = false;
  }

  async #readiness() {
    if (performance.now() - this.#asked < READINESS_EVERY && !this.#failures) return;
    let told;
    try {
      told = { isReady: true, ...(await ask("GET", "readyz")).data };
    } catch (error) {
      if (error.status !== 503) throw error;
      told = { isReady: false, reasons: error.data?.reasons ?? [error.message] };
    }
    this.#asked = performance.now();
    this.#hears.ready(told);
  }

  async #live() {
    if (this.#isShut) return;
    const { data } = await admin("GET", "/live");
    this.#hears.access("open", "");
    this.#hears.live(data);
  }

  /** Poll again after the token has changed. */
  reopen() {
    this.#isShut = false;
    this.again();
  }

  #understands(error) {
    if (error.name !== "ProblemError") return false;
    if (error.status === 401 || error.status === 403 || error.status === 404) {
      this.#isShut = true;
      const isClosed = error.status === 404 || (error.status === 403 && !hasToken()) || /closed/.test(error.message);
      this.#hears.access(isClosed ? "closed" : "locked", error.status === 404 ? "" : error.message);
      this.#failures = 0;
      return true;
    }
    this.#failures += 1;
    this.#isShut = false; // access may differ after a restart
    this.#since ??= new Date();
    this.#told = { told: error.message, status: error.status };
    return true;
  }
}
