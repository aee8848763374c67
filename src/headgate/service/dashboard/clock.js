// Points in time as text, in the time zone of the browser.

const TIME = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const EXACT = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
const YEAR = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric" });

const midnight = (date) => new Date(date.getFullYear(), date.getMonth(), date.getDate());

/** "14:02", "yesterday 14:02", "3 Nov, 14:02"; *at* and *now* are dates. */
export function moment(at, now = new Date()) {
  if (Number.isNaN(at.getTime())) return "–";
  const days = Math.round((midnight(now) - midnight(at)) / 86_400_000);
  if (days === 0) return TIME.format(at);
  if (days === 1) return `yesterday ${TIME.format(at)}`;
  const day = at.getFullYear() === now.getFullYear() ? DAY : YEAR;
  return `${day.format(at)}, ${TIME.format(at)}`;
}

/** As `moment`, for seconds since the epoch. */
export const momentOf = (seconds) => moment(new Date(seconds * 1000));

/** The time zone: "Europe/Berlin". */
export const zone = TIME.resolvedOptions().timeZone ?? "this browser";

/** With seconds: "14:02:07". */
export const exact = (date) => EXACT.format(date);
