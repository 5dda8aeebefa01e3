// Elements: the document is built from values, never from strings of markup, so no text can become markup.

/** An element. `properties` are its properties (`class`, `for`, `aria-…`, `data-…` and `role` its attributes, `on` its
 * listeners by event); children are nodes or texts, and what is null or false is left out. */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null) continue;
    if (name === "on") for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    else if (/^(class|for|role|list|aria-.*|data-.*)$/.test(name)) element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...present(children));
  return element;
}

/** An element of an SVG; all properties are attributes. */
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    else if (value !== undefined && value !== null) element.setAttribute(name, value);
  }
  element.append(...present(children));
  return element;
}

/** Replace the children of an element. */
export function fill(element, ...children) {
  element.replaceChildren(...present(children));
  return element;
}

const UNREADABLE =
  /[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}]/gu;

/** A name or code without the characters that make it look like another (gateway/support/printable.py). */
export function readable(text) {
  return text.replace(UNREADABLE, "");
}

const SEQUENCES = /(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-~]/g;

/** The output of a program without the escape sequences that it would send to a terminal. A text that a lone carriage
 * return would let the next one overwrite stays, on a line of its own: nothing that a model reads is hidden. */
export function withoutEscapes(text) {
  return readable(text.replace(SEQUENCES, "").replace(/\r\n?/g, "\n"));
}

const CITATION = /^([^\n#]{1,500}\.md|sessions\/[A-Za-z0-9-]{1,64}\.jsonl)#L(\d{1,9})(?:-L?(\d{1,9}))?$/;
const LONGEST_QUERY = 300; // characters of a query in an address

/** The page of a citation such as `MEMORY.md#L3-L7` or `sessions/ID.jsonl#L5-L9`; null if the text is none. The words of a
 * `query` are highlighted there; `of` is the agent whose memory it is, or `session:ID` for that of a session. */
export function placeOf(text, { query = "", of = "" } = {}) {
  const [, path, first, last] = CITATION.exec(text) ?? [];
  if (!path) return null;
  const rest = [path, first, last ?? first, [...query].slice(0, LONGEST_QUERY).join(""), of];
  while (!rest.at(-1)) rest.pop();
  return `#/memory/${rest.map(encodeURIComponent).join("/")}`;
}

function present(children) {
  return children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
}
