// A plugin of markdown-it for footnotes: `[^name]` refers to `[^name]: text`. What has no counterpart stays as it was written.
import { h } from "../elements.js";
import { t } from "../language.js";

const DEFINITION = /^\[\^([^\s[\]]{1,40})\]:[ \t]/;
const REFERENCE = /\[\^([^\s[\]]{1,40})\](?![:(])/y;

export function footnotes(parser) {
  parser.block.ruler.before("paragraph", "footnote", definition, { alt: ["paragraph"] });
  parser.inline.ruler.before("link", "footnote", reference);
}

/** Parse a definition: its line and what follows, up to an empty line or the next one, and further paragraphs that are indented. */
function definition(state, startLine, endLine, silent) {
  if (state.level || state.env.inNote || state.sCount[startLine] >= 4) return false;
  const text = (line) => state.src.slice(state.bMarks[line] + state.tShift[line], state.eMarks[line]);
  const begins = DEFINITION.exec(text(startLine));
  if (!begins) return false;
  if (silent) return true;
  const lines = [text(startLine).slice(begins[0].length)];
  let [line, empty] = [startLine + 1, 0];
  for (; line < endLine; line++) {
    if (state.isEmpty(line)) empty++;
    else if ((empty && state.sCount[line] < 4) || DEFINITION.test(text(line))) break;
    else {
      lines.push(...Array(empty).fill(""), state.getLines(line, line + 1, 4, false));
      empty = 0;
    }
  }
  const open = state.push("footnote_open", "div", 1);
  open.info = begins[1];
  open.map = [startLine, line - empty];
  const first = state.tokens.length;
  state.md.block.parse(lines.join("\n"), state.md, { inNote: true }, state.tokens);
  for (const token of state.tokens.slice(first)) token.level++;
  state.push("footnote_close", "div", -1);
  state.line = line - empty;
  return true;
}

function reference(state, silent) {
  if (state.src[state.pos] !== "[" || state.src[state.pos + 1] !== "^") return false;
  REFERENCE.lastIndex = state.pos;
  const found = REFERENCE.exec(state.src);
  if (!found) return false;
  if (!silent) state.push("footnote_reference", "", 0).info = found[1];
  state.pos += found[0].length;
  return true;
}

/** Return the element of a reference, which `numberNotes` completes. */
export function referenceTo(name) {
  return h("span", { class: "note reference", "data-name": name }, `[^${name}]`);
}

/** Return the element of a definition, which `numberNotes` completes, and the one that receives its content. */
export function noteOf(name) {
  const into = h("div", {});
  return { element: h("div", { class: "note definition", "data-name": name }, h("span", { class: "number" }, `[^${name}]:`), into), into };
}

/** Number the footnotes in an element in the order in which they are referred to. */
export function numberNotes(element) {
  const definitions = new Map();
  for (const note of element.querySelectorAll(".note.definition")) if (!definitions.has(note.dataset.name)) definitions.set(note.dataset.name, note);
  const numbers = new Map();
  for (const place of element.querySelectorAll(".note.reference")) {
    const { name } = place.dataset;
    const note = definitions.get(name);
    if (!note) continue;
    if (!numbers.has(name)) numbers.set(name, String(numbers.size + 1));
    const number = numbers.get(name);
    label(place, number, t("Footnote {number}", { number }), note);
    if (place === firstOf(element, name)) label(note.firstChild, number, t("Back to the text"), place);
  }
}

function firstOf(element, name) {
  return [...element.querySelectorAll(".note.reference")].find((place) => place.dataset.name === name);
}

/** Put a button into `place` that leads to another element. */
function label(place, number, words, target) {
  if (place.dataset.number === number) return;
  place.dataset.number = number;
  const go = () => {
    target.scrollIntoView({ block: "center" });
    (target.querySelector("button") ?? target).focus({ preventScroll: true });
  };
  place.replaceChildren(h("button", { type: "button", class: "leads", title: words, "aria-label": words, on: { click: go } }, number));
}
