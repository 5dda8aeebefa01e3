// Why passages of the memory were added to a message, as the log has it.
import { h, placeOf, readable } from "../elements.js";
import { duration } from "../format.js";
import { language, t } from "../language.js";

const COMMON = 12; // words that are named

/** Return what a `memory_recalled` searched for, and each hit with its score and the words that it shares with the message. */
export function recallReasons({ query, hits, millis }, of) {
  const columns = [t("Recalled"), t("Score"), t("Words in common")];
  const row = (hit) => {
    const citation = `${hit.path}#L${hit.lines[0]}-L${hit.lines[1]}`;
    const href = placeOf(citation, { query, of });
    const headings = (hit.headings ?? []).map(readable).join(" › ");
    return h("tr", {}, h("th", { scope: "row" }, h(href ? "a" : "span", { href }, readable(citation)), headings ? ` ${headings}` : ""),
      h("td", {}, hit.score.toFixed(3)), h("td", {}, inCommon(query, hit.text).slice(0, COMMON).join(", ")));
  };
  return h("section", { class: "recall-reasons" },
    h("p", {}, t("Searched for “{query}”, in {time}.", { query: readable(query), time: duration(millis, 1) })),
    h("table", { class: "shares" }, h("caption", {}, t("Why these were recalled")),
      h("thead", {}, h("tr", {}, columns.map((name) => h("th", { scope: "col" }, name)))), h("tbody", {}, hits.map(row))),
    h("p", { class: "about" }, t("A score is recorded as one number. In notes and conversations it comes from words, from vectors where there are any, and from age; in facts from words, importance and age.")));
}

/** The words of both texts, longest first. */
function inCommon(one, other) {
  const known = wordsOf(other);
  return [...wordsOf(one)].filter((word) => known.has(word)).sort((first, second) => second.length - first.length);
}

function wordsOf(text) {
  const pieces = new Intl.Segmenter(language, { granularity: "word" }).segment(text.toLowerCase());
  return new Set(Array.from(pieces).filter(({ isWordLike }) => isWordLike).map(({ segment }) => segment));
}
