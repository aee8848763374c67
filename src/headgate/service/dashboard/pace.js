// Detects whether totals grow.

/** Tests whether a total has grown within the last *seconds*. */
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
