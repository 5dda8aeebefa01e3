// What tokens cost, by the prices that the gateway knows. An unknown price is no price: nothing is estimated.
import { listed } from "./composer/models.js";
import { locale } from "./language.js";

const MILLION = 1_000_000;

/** Return the known prices of models by their ids. */
export async function prices(api) {
  const { models } = await listed({ api }).catch(() => ({ models: [] }));
  return new Map(models.filter(({ price }) => price).map(({ id, price }) => [id, price]));
}

/** What a usage costs; `cached` is a part of `input`. */
export function cost(price, { input = 0, output = 0, cached = 0 }) {
  return ((input - cached) * price.input + cached * price.cached + output * price.output) / MILLION;
}

/** Return the cost of usages by model, as `{amount, currency}`; null if the price of one is unknown, or nothing was used. */
export function costOfAll(known, usages) {
  const used = Object.entries(usages);
  if (!used.length || used.some(([model]) => !known.has(model))) return null;
  const amount = used.reduce((sum, [model, usage]) => sum + cost(known.get(model), usage), 0);
  return { amount, currency: known.get(used[0][0]).currency };
}

/** An amount of money: $0.0042, $1.30. */
export function money({ amount, currency }) {
  const digits = amount && amount < 0.1 ? { maximumSignificantDigits: 2 } : { maximumFractionDigits: 2 };
  return new Intl.NumberFormat(locale, { style: "currency", currency, currencyDisplay: "narrowSymbol", ...digits }).format(amount);
}
