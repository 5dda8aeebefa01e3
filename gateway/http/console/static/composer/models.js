// The models that can answer, as the gateway lists them.
import { brief } from "../format.js";
import { locale, t } from "../language.js";

const FRESH = 60_000; // milliseconds for which a list is used again
let known = null; // the list that was requested last: {at, list}

/** Return `{default, models, failures}` of `/api/models`, requested at most once a minute. */
export function listed(app) {
  if (!known || Date.now() - known.at > FRESH) {
    const list = app.api.get("/api/models");
    known = { at: Date.now(), list };
    list.catch(() => (known = null));
  }
  return known.list;
}

/** The size of a window in tokens, such as "200K"; empty if unknown. */
export function windowOf({ window }) {
  return window ? brief(window) : "";
}

/** What a million tokens cost, such as "$2 / $8"; empty if unknown. */
export function priceOf({ price }) {
  return price ? `${amount(price.input, price.currency)} / ${amount(price.output, price.currency)}` : "";
}

/** The price in words, for titles and screen readers. */
export function priceInWords({ price }) {
  if (!price) return "";
  const values = { input: amount(price.input, price.currency), output: amount(price.output, price.currency), day: price.at ?? "" };
  return price.at ? t("{input} for a million tokens read, {output} for a million written; as of {day}", values)
    : t("{input} for a million tokens read, {output} for a million written", values);
}

function amount(value, currency) {
  const digits = value && value < 1 ? 3 : 2;
  return new Intl.NumberFormat(locale, { style: "currency", currency, currencyDisplay: "narrowSymbol", minimumFractionDigits: 0, maximumFractionDigits: digits }).format(value);
}
