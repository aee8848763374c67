// How fast counts grow that are told as totals.

const WINDOW = 10;

/** The rate of a total over the last ten seconds, from what was heard of it. */
export class Pace {
  #heard = [];

  /** *at* is seconds. The rate a second; null until it is known. */
  of(at, total) {
    const last = this.#heard.at(-1);
    if (last && (total < last.total || at < last.at)) this.#heard = []; // the service began again
    if (!last || at > last.at) this.#heard.push({ at, total });
    while (this.#heard.length > 2 && at - this.#heard[0].at > WINDOW) this.#heard.shift();
    const [first] = this.#heard;
    return first && at > first.at ? (total - first.total) / (at - first.at) : null;
  }
}

/** Whether a total has grown within the last *seconds*. */
export class Growing {
  #seen = new Map();

  constructor(seconds) { this.seconds = seconds; }

  is(name, at, total) {
    const known = this.#seen.get(name);
    if (!known || total < known.total) this.#seen.set(name, { total, at: -Infinity });
    else if (total > known.total) this.#seen.set(name, { total, at });
    return at - this.#seen.get(name).at <= this.seconds;
  }
}
