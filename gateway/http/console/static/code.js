// Syntax highlighting. The tokens of highlight.js become elements, not markup.
import { h } from "./elements.js";
import hljs from "./vendor/highlight.js";

const LONGEST = 40_000; // characters that are highlighted
const PIECE = 3000; // characters highlighted at once: the time of highlight.js grows with their square
const MILLISECONDS = 300;

/** Highlight a `<code data-language=…>` if the language is known. Code that takes too long stays plain. */
export function colourIn(place) {
  const language = place.dataset.language.toLowerCase();
  const text = place.textContent;
  place.classList.add("coloured");
  if (!hljs.getLanguage(language) || text.length > LONGEST) return;
  const until = performance.now() + MILLISECONDS;
  const nodes = [];
  let at = 0;
  for (let end; at < text.length && performance.now() < until && (end = endOfPiece(text, at)) > at; at = end) {
    const found = hljs.highlight(text.slice(at, end), { language, ignoreIllegals: true });
    nodes.push(...found._emitter.rootNode.children.map(built));
  }
  place.replaceChildren(...nodes, document.createTextNode(text.slice(at)));
}

/** Return the end of the piece that begins at `at`: the end of the text, or the last unindented line after an empty one; `at`
 * if there is none within reach. */
function endOfPiece(text, at) {
  if (text.length - at <= PIECE) return text.length;
  let end = text.lastIndexOf("\n\n", at + PIECE - 2);
  while (end > at && /\s/.test(text[end + 2])) end = text.lastIndexOf("\n\n", end - 1);
  return end >= at ? end + 2 : at;
}

function built(node) {
  if (typeof node === "string") return document.createTextNode(node);
  const scope = node.scope ? `c-${node.scope.split(".")[0].replaceAll("_", "")}` : null;
  return h("span", { class: scope }, node.children.map(built));
}
