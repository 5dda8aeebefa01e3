// Format times for people.

const MINUTE = 60_000;
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const day = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
const year = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", year: "numeric" });
const whole = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "medium" });

/** Briefly: "now", "5 min", the time if today, else the date. `at` is RFC 3339. */
export function ago(at, now = new Date()) {
  const then = new Date(at);
  const minutes = Math.floor((now - then) / MINUTE);
  if (minutes < 1) return "now";
  if (minutes < 60) return `${minutes} min`;
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
