// Moments in words: how people say when something was.

const MINUTE = 60_000;
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const day = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
const year = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", year: "numeric" });
const whole = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "medium" });

/** Shortly: "now", "5 min", the time of today, else the date. `at` is RFC 3339. */
export function ago(at, now = new Date()) {
  const then = new Date(at);
  const minutes = Math.floor((now - then) / MINUTE);
  if (minutes < 1) return "now";
  if (minutes < 60) return `${minutes} min`;
  if (then.toDateString() === now.toDateString()) return clock.format(then);
  return (then.getFullYear() === now.getFullYear() ? day : year).format(then);
}

/** The time of the day, with the date where it is not today's. */
export function when(at, now = new Date()) {
  const then = new Date(at);
  if (then.toDateString() === now.toDateString()) return clock.format(then);
  return `${(then.getFullYear() === now.getFullYear() ? day : year).format(then)}, ${clock.format(then)}`;
}

/** All of it. */
export function exactly(at) {
  return whole.format(new Date(at));
}
