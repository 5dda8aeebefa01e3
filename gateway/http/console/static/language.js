// The language of the console: that of the browser, or the one chosen in it. English texts are the keys of the dictionaries
// in languages/, of which at most one is loaded. Only this module waits for it: all others can call `t` at once.

const KEY = "exuvia.language";

/** The names of the languages, each in itself. */
export const LANGUAGES = { en: "English", de: "Deutsch", es: "Español", fr: "Français", zh: "中文" };

const base = (tag) => tag.toLowerCase().split("-")[0];

/** The language of the texts. */
export const language = [localStorage.getItem(KEY), ...navigator.languages.map(base)].find((each) => each in LANGUAGES) ?? "en";

/** The locale of numbers and dates: the browser's variant of the language, if it has one. */
export const locale = navigator.languages.find((each) => base(each) === language) ?? language;

const dictionary = language === "en" ? {} : (await import(`./languages/${language}.js`)).default;
const plural = new Intl.PluralRules(language);
const digits = new Intl.NumberFormat(locale, { maximumFractionDigits: 0 });

document.documentElement.lang = language;

/** Use another language from now on: the page is loaded again. Drafts are kept. */
export function choose(tag) {
  localStorage.setItem(KEY, tag);
  location.reload();
}

/** Return the text of an English sentence, with `values` in place of `{name}`. The sentence must be a literal. */
export function t(sentence, values = {}) {
  return filled(dictionary[sentence] ?? sentence, values);
}

/** Return the form of a text for this number, which stands in place of `{count}`. Both English forms must be literals. */
export function tn(number, one, other, values = {}) {
  const forms = dictionary[other] ?? { one, other };
  return filled(forms[plural.select(number)] ?? forms.other, { count: digits.format(number), ...values });
}

/** Like `t`, but with elements among the values; returns texts and elements in their order. */
export function th(sentence, values) {
  return (dictionary[sentence] ?? sentence).split(/\{(\w+)\}/).map((piece, index) => (index % 2 ? values[piece] : piece));
}

function filled(text, values) {
  return text.replace(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole);
}
