// Render Markdown.
import { h } from "./elements.js";
import { Markdown } from "./markdown.js";

/** The markers of the gateway's own sections in a note. */
const MARKS = /^<!-- exuvia [0-9a-f]{16} -->\n?/gm;

/** Return an element of this class with the rendered text. */
export function renderMarkdown(kind, text) {
  const element = h("div", { class: `prose ${kind}` });
  new Markdown(element).show(text.replace(MARKS, ""));
  return element;
}
