// Passages that the memory has found, as a tool returned them or as they were recalled: each leads to its place, and the words
// that were sought are marked in it.
import { h, readable, withoutEscapes } from "../elements.js";
import { mark } from "../matches.js";

const SEARCH = "memory_search";

/** The results of a call that searched the memory; null for another call, or one that failed. */
export function passagesOf({ tool, state, output }) {
  if (tool !== SEARCH || state !== "returned") return null;
  try {
    const { results, remarks = [] } = JSON.parse(output);
    const plain = results.every(({ citation, text }) => typeof citation === "string" && typeof text === "string");
    return plain ? { results, remarks } : null;
  } catch {
    return null;
  }
}

/** Elements of the results of a search for `query`; `acts` and `entry` are those of the timeline. */
export function drawPassages({ results, remarks }, query, acts, entry) {
  const cites = acts.cites?.({ ...entry, query });
  const texts = results.map(({ text }) => h("pre", { class: "long", tabIndex: 0 }, withoutEscapes(text)));
  markPassages(texts, results.map(({ citation }) => citation), query, acts, entry);
  return [
    ...results.map(({ citation, headings }, at) => [
      h("p", { class: "label" }, h(cites?.(citation) ? "a" : "span", { href: cites?.(citation) }, readable(citation)),
        Array.isArray(headings) && headings.length ? ` ${readable(headings.join(" › "))}` : ""),
      texts[at],
    ]),
    ...remarks.map((remark) => h("p", { class: "label" }, readable(String(remark)))),
  ];
}

/** Mark the words of a query in elements that show the texts of citations. */
export async function markPassages(elements, citations, query, acts, entry) {
  if (!acts.words || !query) return;
  const words = await acts.words(entry, citations, query);
  elements.forEach((element, at) => words[at] && mark([element], words[at]));
}
