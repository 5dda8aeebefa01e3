// Markdown as elements. markdown-it parses the text, and each token becomes an element of a short list:
// HTML stays text, pictures and links load nothing, and only links to the web can be followed.
import { h, placeOf, readable } from "./elements.js";
import { LongText, isLong } from "./long_text.js";
import MarkdownIt from "./vendor/markdown-it.js";
import { verbatim } from "./verbatim.js";

const parser = new MarkdownIt({ html: false, linkify: true }).use(verbatim);
const TAGS = new Set(["p", "ul", "ol", "li", "blockquote", "table", "thead", "tbody", "tr", "th", "td", "em", "strong", "s"]);
const WEB = /^(https?:|mailto:)/i;

/** A text that is shown as Markdown in `element`, and may grow: parts that stay the same keep their elements. */
export class Markdown {
  constructor(element) {
    this.element = element;
    this.text = null;
    this.shown = [];
  }

  /** Show a text; `whole` if it is complete. Texts that would take long are shown as plain text. */
  show(text, whole = true) {
    if (text === this.text && !whole) return;
    this.text = text;
    if (isLong(text)) {
      this.shown = [];
      this.long ??= this.element.replaceChildren() ?? new LongText(this.element);
      this.long.show(text);
    } else {
      this.long = null;
      this.draw(blocks(text));
      if (whole) colour(this.element);
    }
  }

  draw(parts) {
    let same = 0;
    while (same < parts.length && same < this.shown.length && parts[same].source === this.shown[same].source) same++;
    for (const { node } of this.shown.slice(same)) node.remove();
    if (!same) this.element.replaceChildren();
    this.shown.length = same;
    for (const part of parts.slice(same)) {
      const node = built(part.tokens);
      this.element.append(node);
      this.shown.push({ source: part.source, node });
    }
  }
}

/** The top-level blocks of a text, each with its source and tokens. */
function blocks(text) {
  const tokens = parser.parse(text, {});
  const lines = text.split("\n");
  const found = [];
  let part = [];
  for (const token of tokens) {
    part.push(token);
    if (token.level === 0 && token.nesting !== 1) {
      const [first, end] = part[0].map ?? [0, lines.length];
      found.push({ source: lines.slice(first, end).join("\n"), tokens: part });
      part = [];
    }
  }
  return found;
}

function built(tokens) {
  const root = h("div", { class: "block" });
  build(tokens, root);
  return root;
}

function build(tokens, root) {
  const path = [root];
  for (const token of tokens) {
    const top = path.at(-1);
    if (token.type === "inline") build(token.children, top);
    else if (token.nesting === 1) path.push(opened(token, top));
    else if (token.nesting === -1) path.pop();
    else top.append(leaf(token));
  }
}

/** The element that a token opens, which receives the content until it is closed. */
function opened(token, parent) {
  if (token.hidden) return parent; // the paragraph of a tight list
  if (token.type === "table_open") return within(parent, h("div", { class: "wide" }), h("table"));
  if (token.type === "heading_open") return within(parent, h(`h${Math.min(6, Number(token.tag[1]) + 2)}`));
  if (token.type === "link_open") return within(parent, linkTo(token.attrGet("href") ?? ""));
  const element = h(TAGS.has(token.tag) ? token.tag : "span");
  const align = /text-align:(\w+)/.exec(token.attrGet("style") ?? "");
  if (align) element.style.textAlign = align[1];
  if (token.tag === "ol" && token.attrGet("start") !== null) element.start = Number(token.attrGet("start"));
  return within(parent, element);
}

function within(parent, ...elements) {
  for (const element of elements) parent = parent.appendChild(element);
  return parent;
}

function linkTo(href) {
  if (!WEB.test(href)) return h("span", { class: "no-link", title: href });
  return h("a", { href, target: "_blank", rel: "noopener noreferrer", title: href });
}

function leaf(token) {
  switch (token.type) {
    case "code_inline":
      return inlineCode(token.content);
    case "fence":
    case "code_block":
      return code(readable(token.content.replace(/\n$/, "")), token.info.trim().split(/\s+/)[0]);
    case "formula":
      return h("span", { class: "formula" }, token.content);
    case "formula_block":
      return h("div", { class: "formula" }, token.content);
    case "image":
      return picture(token);
    case "hardbreak":
      return h("br");
    case "hr":
      return h("hr");
    default:
      return document.createTextNode(token.type === "softbreak" ? "\n" : token.content);
  }
}

/** Inline code; a citation leads to its place. */
function inlineCode(text) {
  const element = h("code", {}, readable(text));
  const href = placeOf(text);
  return href ? h("a", { class: "place", href }, element) : element;
}

/** Show the address of a picture: it is on another host, and nothing is loaded from there. */
function picture(token) {
  const link = linkTo(token.attrGet("src") ?? "");
  link.classList.add("picture");
  link.append(`Picture: ${readable(token.content) || "without a name"}`);
  return link;
}

function code(text, language) {
  const place = h("code", { "data-language": language || null }, text);
  const copy = h("button", { class: "quiet worded copy", type: "button" }, "Copy");
  copy.addEventListener("click", async () => {
    await navigator.clipboard.writeText(place.textContent);
    copy.textContent = "Copied";
    setTimeout(() => (copy.textContent = "Copy"), 1500);
  });
  const block = h("pre", { tabIndex: 0 }, place);
  return h("div", { class: "code" }, h("div", { class: "code-head" }, h("span", {}, language || "text"), navigator.clipboard ? copy : null), block);
}

async function colour(element) {
  const plain = element.querySelectorAll("code[data-language]:not(.coloured)");
  if (!plain.length) return;
  const { colourIn } = await import("./code.js");
  plain.forEach(colourIn);
}

/** The markers of the gateway's own sections in a note. */
const MARKS = /^<!-- exuvia [0-9a-f]{16} -->\n?/gm;

/** Return an element of this class with the rendered text. */
export function renderMarkdown(kind, text) {
  const element = h("div", { class: `prose ${kind}` });
  new Markdown(element).show(text.replace(MARKS, ""));
  return element;
}
