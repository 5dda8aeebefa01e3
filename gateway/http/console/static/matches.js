// The places of searched words in a text, and how they are shown there: as `<mark>`, or as highlights that change no element.

const NAME = "sought"; // of the highlight in console.css
const RUNS = /[\p{L}\p{M}\p{N}]+/gu; // of letters, their marks, and digits
const ACCENTS = /[\u0300-\u036f]/g; // those of the Latin, Greek and Cyrillic scripts
const UNSPACED = /[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]/; // scripts without spaces

/** Return `[start, end]` of each word of a text that begins with one of the query's words, whatever its case and accents. */
export function matches(text, query) {
  const words = wordsOf(query).sort((one, other) => other.length - one.length);
  const found = [];
  for (const { 0: run, index } of words.length ? text.matchAll(RUNS) : []) {
    const { plain, places } = folded(run);
    for (let at = 0; at < plain.length; at++) {
      const word = words.find((each) => plain.startsWith(each, at) && (at === 0 || UNSPACED.test(each)));
      if (word) {
        found.push([index + places[at], index + places[at + word.length]]);
        at += word.length - 1;
      }
      if (!word && !UNSPACED.test(plain[at])) break;
    }
  }
  return found;
}

/** Return how many of a query's words a text has. */
export function wordsFound(text, query) {
  return new Set(matches(text, query).map(([start, end]) => folded(text.slice(start, end)).plain)).size;
}

function wordsOf(query) {
  return [...new Set((query.match(RUNS) ?? []).map((run) => folded(run).plain))].filter(Boolean);
}

/** Lower case without accents, and the place in the text of each of its characters, and of its end. */
function folded(text) {
  let plain = "";
  const places = [];
  let at = 0;
  for (const character of text) {
    const letters = character.toLowerCase().normalize("NFD").replace(ACCENTS, "").normalize();
    for (let each = 0; each < letters.length; each++) places.push(at);
    plain += letters;
    at += character.length;
  }
  return { plain, places: [...places, at] };
}

/** Highlight the words of a query in elements until `clearHighlights`. */
export function highlight(elements, query) {
  if (!globalThis.Highlight) return; // an older browser
  const ranges = [];
  for (const node of elements.flatMap(textsOf)) {
    for (const [start, end] of matches(node.data, query)) {
      ranges.push(new StaticRange({ startContainer: node, startOffset: start, endContainer: node, endOffset: end }));
    }
  }
  CSS.highlights.set(NAME, new Highlight(...ranges));
}

/** Return the forms in which the words of a query occur at a citation, `otherwise` where nobody can tell. */
export async function formsAt(api, citation, query, { agent = "", otherwise = query } = {}) {
  if (!query) return "";
  try {
    return (await api.get(`/api/memory/forms?${new URLSearchParams({ at: citation, q: query, ...(agent && { agent }) })}`)).words.join(" ");
  } catch {
    return otherwise;
  }
}

export function clearHighlights() {
  globalThis.CSS?.highlights?.delete(NAME);
}

/** Put the words of a query in elements into `<mark>`; returns the marks. For elements that are never drawn again. */
export function mark(elements, query) {
  const made = [];
  for (const node of elements.flatMap(textsOf)) {
    for (const [start, end] of matches(node.data, query).reverse()) {
      const range = new Range();
      range.setStart(node, start);
      range.setEnd(node, end);
      const element = document.createElement("mark");
      range.surroundContents(element);
      made.push(element);
    }
  }
  return made;
}

function textsOf(element) {
  const texts = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  const found = [];
  while (texts.nextNode()) found.push(texts.currentNode);
  return found;
}
