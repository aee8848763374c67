// Figures and rules in words.

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const ONE = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const count = (number) => WHOLE.format(number ?? 0);

/** A rate per second. */
export const rate = (number) => {
  const value = number ?? 0;
  if (value !== 0 && Math.abs(value) < 0.05) return "<0.1";
  return (value < 100 ? ONE : value < 1e6 ? WHOLE : SHORT).format(value);
};

export const share = (part, whole) => {
  if (!whole) return "–";
  const percent = (100 * part) / whole;
  return percent > 0 && percent < 0.1 ? "<0.1 %" : `${ONE.format(percent)} %`;
};

export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

/** A duration, given in seconds. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds === 0) return "0 s";
  if (seconds < 0.001) return `${ONE.format(seconds * 1e6)} µs`;
  if (seconds < 1) return `${ONE.format(seconds * 1e3)} ms`;
  if (seconds < 120) return `${ONE.format(seconds)} s`;
  if (seconds < 7200) return `${ONE.format(seconds / 60)} min`;
  return seconds < 172_800 ? `${ONE.format(seconds / 3600)} h` : `${ONE.format(seconds / 86_400)} days`;
}

const UNITS = new Map([
  [/^(ms|milliseconds?|msecs?)$/i, "millisecond"], [/^(s|secs?|seconds?)$/i, "second"],
  [/^(m|mins?|minutes?)$/i, "minute"], [/^(h|hrs?|hours?)$/i, "hour"], [/^(d|days?)$/i, "day"], [/^(w|weeks?)$/i, "week"],
]);

function limitText(text) {
  const match = /^\s*([\d_.]+)\s*(?:\/|\s+per\s+)\s*([\d.]*)\s*([a-z]+)\b\s*(.*)$/i.exec(text);
  const unit = match && [...UNITS].find(([pattern]) => pattern.test(match[3]))?.[1];
  if (!unit) return text.trim();
  const number = Number(match[1].replaceAll("_", ""));
  const limit = Number.isFinite(number) ? ONE.format(number) : match[1];
  const window = match[2] && match[2] !== "1" ? `${match[2]} ${unit}s` : unit;
  const rest = match[4].trim().replaceAll("_", " ");
  return `${limit} per ${window}${rest ? `, ${rest}` : ""}`;
}

/** Any value of a document as short text. */
export function plainText(value) {
  if (typeof value === "string") return value;
  if (Array.isArray(value)) return value.map(plainText).join(", ");
  if (value !== null && typeof value === "object") {
    return Object.entries(value).map(([name, one]) => `${name}: ${plainText(one)}`).join(", ");
  }
  return String(value);
}

function limitList(limits) {
  if (typeof limits === "string") return limits.split(";").filter((one) => one.trim()).map(limitText).join(" and ");
  if (Array.isArray(limits)) return limits.map((one) => (typeof one === "string" ? limitText(one) : plainText(one))).join(" and ");
  return plainText(limits);
}

const LIMIT_FIELDS = ["algorithm", "capacity", "refill_rate_per_sec", "rate_per_sec", "burst", "window", "window_sec", "leak_rate_per_sec", "subwindows"];

/** The limit of a rule, in words. */
export function limitWords(rule) {
  if (rule.limit !== undefined && typeof rule.limit !== "number") return limitList(rule.limit);
  if (rule.limits !== undefined) {
    const by = rule.limits;
    if (by === null || typeof by !== "object" || Array.isArray(by)) return limitList(by);
    return Object.entries(by).map(([tier, one]) => `${tier}: ${limitList(one)}`).join("; ");
  }
  for (const name of ["shape", "concurrency", "fair"]) {
    if (rule[name] === undefined) continue;
    if (name === "concurrency" && ["number", "string"].includes(typeof rule[name])) return `${rule[name]} at a time`;
    const lead = { shape: "queue", concurrency: "slots", fair: "fair queue" }[name];
    return typeof rule[name] === "object" || typeof rule[name] === "string" ? `${lead}: ${plainText(rule[name])}` : lead;
  }
  return [...LIMIT_FIELDS, "limit"].filter((name) => rule[name] !== undefined)
    .map((name) => (name === "algorithm" ? String(rule[name]).replaceAll("_", " ") : `${name.replaceAll("_", " ")} ${plainText(rule[name])}`)).join(", ");
}

/** The key of a rule, in words. */
export function keyWords(keyBy) {
  const names = [keyBy].flat().filter((one) => one !== undefined && one !== null);
  if (!names.length || (names.length === 1 && names[0] === "global")) return "for all together";
  return `for each ${names.join(" and ")}`;
}

const CALLERS = new Map([["tenant", "tenant"], ["user_id", "user"], ["api_key", "API key"]]);

/** The key of a rule as a noun: "tenant"; null if all callers share one counter. */
export function callerWord(keyBy) {
  const names = [keyBy].flat();
  if (names.length !== 1) return "caller";
  return names[0] === "global" ? null : CALLERS.get(names[0]) ?? "caller";
}

/** The requests that a rule matches, in words. */
export function matchWords(match) {
  const { method, endpoint, ...rest } = match ?? {};
  const parts = [method, endpoint].flat().filter(Boolean).map(String);
  for (const [name, value] of Object.entries(rest)) parts.push(`${name}: ${plainText(value)}`);
  return parts.join(" ") || "every request";
}
