// Format numbers, durations and times for people.
import { locale, t, tn } from "./language.js";

const MINUTE = 60_000;
const clock = new Intl.DateTimeFormat(locale, { hour: "2-digit", minute: "2-digit" });
const day = new Intl.DateTimeFormat(locale, { day: "numeric", month: "short" });
const year = new Intl.DateTimeFormat(locale, { day: "numeric", month: "short", year: "numeric" });
const whole = new Intl.DateTimeFormat(locale, { dateStyle: "full", timeStyle: "medium" });

/** Briefly: "now", "5 min", the time if today, else the date. `at` is RFC 3339. */
export function ago(at, now = new Date()) {
  const then = new Date(at);
  const minutes = Math.floor((now - then) / MINUTE);
  if (minutes < 1) return t("now");
  if (minutes < 60) return t("{minutes} min", { minutes });
  if (then.toDateString() === now.toDateString()) return clock.format(then);
  return (then.getFullYear() === now.getFullYear() ? day : year).format(then);
}

/** The time, with the date unless it is today. */
export function when(at, now = new Date()) {
  const then = new Date(at);
  if (then.toDateString() === now.toDateString()) return clock.format(then);
  return `${(then.getFullYear() === now.getFullYear() ? day : year).format(then)}, ${clock.format(then)}`;
}

/** The full date and time. */
export function exactly(at) {
  return whole.format(new Date(at));
}

const digits = new Intl.NumberFormat(locale, { maximumFractionDigits: 0 });
const tenths = new Intl.NumberFormat(locale, { minimumFractionDigits: 1, maximumFractionDigits: 1 });
const short = new Intl.NumberFormat(locale, { notation: "compact", maximumSignificantDigits: 3 });

/** 14967 as 14,967. */
export const count = (number) => digits.format(number);

/** 14967 as 15K. */
export const brief = (number) => short.format(number);

/** A size in bytes: 1 byte, 340 bytes, 15 kB. */
export const size = (bytes) => (bytes < 1000 ? tn(bytes, "{count} byte", "{count} bytes") : `${short.format(bytes / 1000)} kB`);

/** A duration in seconds: 1.2 ms, 340 ms, 2.1 s, 3 min. */
export function seconds(number) {
  if (number < 0.01) return `${tenths.format(1000 * number)} ms`;
  if (number < 1) return `${Math.round(1000 * number)} ms`;
  return number < 120 ? `${tenths.format(number)} s` : `${Math.round(number / 60)} min`;
}

/** A duration in milliseconds, rounded down to whole `unit`s: 340 ms, 2.1 s, 3 min 5 s; "" if unknown. */
export function duration(milliseconds, unit = 1) {
  if (milliseconds === undefined || milliseconds === null) return "";
  const known = milliseconds - (milliseconds % unit);
  if (known < 1000) return unit < 1000 ? `${known} ms` : "";
  if (known < 60_000) return `${(unit < 1000 ? tenths : digits).format(Math.floor(known / 100) / 10)} s`;
  const [hours, minutes] = [Math.floor(known / 3_600_000), Math.floor((known % 3_600_000) / 60_000)];
  return hours ? `${hours} h ${minutes} min` : `${minutes} min ${Math.floor((known % 60_000) / 1000)} s`;
}

/** Return an error's message as a sentence. */
export function sentence(error) {
  return error instanceof TypeError ? t("The gateway is unreachable.") : error.message;
}
