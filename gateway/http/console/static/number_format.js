// Format numbers and durations for people.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

/** 14967 as 14,967. */
export const count = (number) => whole.format(number);

/** 14967 as 15K. */
export const brief = (number) => short.format(number);

/** "1 turn", "2 turns". */
export const counted = (number, what) => `${count(number)} ${what}${number === 1 ? "" : "s"}`;

/** A duration in seconds: 1.2 ms, 340 ms, 2.1 s, 3 min. */
export function seconds(number) {
  if (number < 0.01) return `${(1000 * number).toFixed(1)} ms`;
  if (number < 1) return `${Math.round(1000 * number)} ms`;
  return number < 120 ? `${number.toFixed(1)} s` : `${Math.round(number / 60)} min`;
}

/** Return an error's message as a sentence. */
export function sentence(error) {
  return error instanceof TypeError ? "The gateway is unreachable." : error.message;
}
