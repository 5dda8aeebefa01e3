// Code in colours. What highlight.js finds in it becomes elements, not markup.
import { h } from "./elements.js";
import hljs from "./vendor/highlight.js";

const LONGEST = 40_000; // characters that are looked through

/** Colour what stands in a `<code data-language=…>`, if the language is known. */
export function colourIn(place) {
  const language = place.dataset.language.toLowerCase();
  const text = place.textContent;
  place.classList.add("coloured");
  if (!hljs.getLanguage(language) || text.length > LONGEST) return;
  const found = hljs.highlight(text, { language, ignoreIllegals: true });
  place.replaceChildren(...found._emitter.rootNode.children.map(built));
}

function built(node) {
  if (typeof node === "string") return document.createTextNode(node);
  const scope = node.scope ? `c-${node.scope.split(".")[0].replaceAll("_", "")}` : null;
  return h("span", { class: scope }, node.children.map(built));
}
