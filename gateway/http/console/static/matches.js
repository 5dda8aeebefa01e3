// The places of searched words in a text, and their highlights in the page, which change no element.

const NAME = "sought"; // of the highlight in console.css
const RUNS = /[\p{L}\p{N}]+/gu; // of letters and digits
const UNSPACED = /[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]/; // scripts without spaces

/** Return `[start, end]` of each word of a text that begins with one of the query's words, whatever its case. */
export function matches(text, query) {
  const words = [...new Set(query.toLowerCase().match(RUNS) ?? [])].sort((one, other) => other.length - one.length);
  const found = [];
  for (const { 0: run, index } of words.length ? text.matchAll(RUNS) : []) {
    const lower = run.toLowerCase();
    for (let at = 0; at < lower.length; at++) {
      const word = words.find((each) => lower.startsWith(each, at) && (at === 0 || UNSPACED.test(each)));
      if (word) {
        found.push([index + at, index + at + word.length]);
        at += word.length - 1;
      }
      if (!word && !UNSPACED.test(lower[at])) break;
    }
  }
  return found;
}

/** Highlight the words of a query in elements until `clearHighlights`. */
export function highlight(elements, query) {
  if (!globalThis.Highlight) return; // an older browser
  const ranges = [];
  for (const element of elements) {
    const texts = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
      const node = texts.currentNode;
      for (const [start, end] of matches(node.data, query)) {
        ranges.push(new StaticRange({ startContainer: node, startOffset: start, endContainer: node, endOffset: end }));
      }
    }
  }
  CSS.highlights.set(NAME, new Highlight(...ranges));
}

export function clearHighlights() {
  globalThis.CSS?.highlights?.delete(NAME);
}
