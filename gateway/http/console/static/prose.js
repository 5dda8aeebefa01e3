// A text that somebody wrote in Markdown, rendered.
import { h } from "./elements.js";
import { Markdown } from "./markdown.js";

/** What the gateway marks its own sections in a note with. */
const MARKS = /^<!-- exuvia [0-9a-f]{16} -->\n?/gm;

/** An element of this class with the text in it. */
export function prose(kind, text) {
  const element = h("div", { class: `prose ${kind}` });
  new Markdown(element).show(text.replace(MARKS, ""));
  return element;
}
