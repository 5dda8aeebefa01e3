// Markdown as elements. markdown-it parses the text, and each token becomes an element of a short list:
// HTML stays text, pictures and links load nothing from elsewhere, and only links to the web can be followed.
//
// A text that is being written is drawn again in every frame. Only its end is parsed again (`Blocks`), and elements whose tokens
// stay the same stay in the document (`Block`), so nothing flickers, a selection is kept, and a frame costs the same however long
// the text is.
import { h, placeOf, readable } from "../elements.js";
import { t } from "../language.js";
import { LongText, isLong } from "../long_text.js";
import MarkdownIt from "../vendor/markdown-it.js";
import { CodeBlock } from "./code_block.js";
import { footnotes, noteOf, numberNotes, referenceTo } from "./footnotes.js";
import { formulaOf } from "./formulas.js";
import { tableOf } from "./tables.js";
import { verbatim } from "./verbatim.js";

const parser = new MarkdownIt({ html: false, linkify: true }).use(verbatim).use(footnotes);
const TAGS = new Set(["p", "ul", "ol", "li", "blockquote", "thead", "tbody", "tr", "th", "td", "em", "strong", "s"]);
const WEB = /^(https?:|mailto:)/i;
const OWN_PICTURE = /^(?:\/attachments\/[0-9a-f]{64}$|data:image\/(?:png|jpeg|gif|webp);base64,)/;
const TASK = /^\[([ xX])\] /;

/** A text that is shown as Markdown in `element`, and may grow: parts that stay the same keep their elements. */
export class Markdown {
  /** `cites` returns the address of a citation, null for another text. */
  constructor(element, cites = placeOf) {
    this.element = element;
    this.cites = cites;
    this.text = null;
    this.blocks = [];
    this.open = 0; // the index of the block from which text that is appended can still change something
  }

  /** Show a text; `whole` if it is complete. Texts that would take long are shown as plain text. */
  show(text, whole = true) {
    if (text === this.text && !whole) return;
    if (isLong(text)) {
      this.blocks = [];
      this.long ??= this.element.replaceChildren() ?? new LongText(this.element);
      this.long.show(text);
    } else {
      if (this.long) this.element.replaceChildren();
      this.long = null;
      this.draw(text.includes("\r") ? text.replace(/\r\n?/g, "\n") : text, whole);
    }
    this.text = text;
  }

  draw(text, whole) {
    const open = whole || this.text === null ? undefined : this.blocks[this.open];
    const grown = open && text.startsWith(this.text.slice(0, open.start));
    const [first, start] = grown ? [this.open, open.start] : [0, 0];
    const found = topLevel(text.slice(start));
    if (!whole && found.length) complete(found, text.slice(start));
    for (const gone of this.blocks.splice(first + found.length)) gone.element.remove();
    if (!this.blocks.length) this.element.replaceChildren();
    const lastLine = text.lastIndexOf("\n") + 1;
    this.open = first;
    found.forEach((part, at) => {
      const index = first + at;
      const block = (this.blocks[index] ??= new Block(this.element, this.cites));
      block.start = start + part.start;
      if (block.start < lastLine) this.open = index; // a line that is not complete can still belong to the block before it
      block.show(part.tokens, whole || at < found.length - 1);
    });
    if (this.element.querySelector(".note")) numberNotes(this.element);
  }

  /** Return the innermost elements of these lines, counted from 1; none of a text that is shown as plain text. */
  atLines(first, last) {
    const found = this.blocks.flatMap(({ tokens, made }) => tokens.flatMap(({ map }, at) =>
      map && map[0] < last && map[1] >= first && made[at].node ? [made[at].node] : []));
    return found.filter((node) => !found.some((other) => other !== node && node.contains(other)));
  }
}

/** The top-level blocks of a text: the position of each, and its tokens with those of its inline content in their places. */
function topLevel(text) {
  const tokens = parser.parse(text, {});
  const found = [];
  let [part, line, at] = [[], 0, 0];
  for (const token of tokens) {
    if (token.type === "inline") part.push(...inline(token, part));
    else part.push(token);
    if (token.level || token.nesting === 1) continue;
    for (const first = part[0].map?.[0] ?? line; line < first; line++) at = text.indexOf("\n", at) + 1;
    found.push({ start: at, tokens: part });
    part = [];
  }
  return found;
}

/** Close what the last line of a text that is being written leaves open, so that it is not shown as marks until it is closed. */
function complete(found, text) {
  const last = found.at(-1);
  if (/^(?:fence|code_block|formula_block)$/.test(last.tokens.at(-1).type)) return;
  const line = text.slice(text.lastIndexOf("\n") + 1);
  const [code, bold] = [line.split("`").length - 1, line.split("**")];
  const mark = code % 2 ? "`" : !code && bold.length % 2 === 0 && /^\S/.test(bold.at(-1)) ? "**" : "";
  if (!mark || text.endsWith(mark[0])) return;
  const [closed] = topLevel(text.slice(last.start) + mark);
  last.tokens = closed.tokens;
}

/** The inline tokens of a token; the box of a task is one of its own. */
function inline({ content, children }, before) {
  const task = before.at(-2)?.type === "list_item_open" && TASK.exec(content);
  if (!task || !children[0].content.startsWith(task[0])) return children;
  children[0].content = children[0].content.slice(task[0].length);
  return [{ type: "task", nesting: 0, content: task[1].trim() }, ...children];
}

/** A block and the elements of its tokens. */
class Block {
  constructor(parent, cites) {
    this.cites = cites;
    this.element = parent.appendChild(h("div", { class: "block" }));
    this.tokens = [];
    this.made = []; // by token: its `node`, and `into`, the element that receives the content; for code its `code`
  }

  /** Show these tokens; `whole` if no more text can belong to them. */
  show(tokens, whole) {
    const before = this.tokens;
    const least = Math.min(before.length, tokens.length);
    let kept = 0;
    while (kept < least && (same(before[kept], tokens[kept]) || this.changed(kept, tokens[kept]))) kept++;
    for (const { node } of this.made.splice(kept)) node?.remove();
    const path = [this.element];
    tokens.forEach((token, at) => {
      if (token.nesting === -1) path.pop();
      if (at >= kept) this.made.push(token.nesting === -1 ? {} : made(token, path.at(-1), this.cites));
      if (token.nesting === 1) path.push(this.made[at].into);
    });
    this.tokens = tokens;
    const last = this.made.length - 1;
    this.made.forEach(({ code }, at) => (at < last || whole) && code?.finish());
  }

  /** Change the element of a token in place; return false if it must be made again. */
  changed(at, token) {
    const [before, { node, code }] = [this.tokens[at], this.made[at]];
    if (before.type !== token.type || before.info !== token.info) return false;
    if (code) code.show(codeOf(token));
    else if (token.type !== "text" || !token.content.startsWith(before.content)) return false;
    else node.appendData(token.content.slice(before.content.length));
    return true;
  }
}

function same(one, other) {
  if (one.type !== other.type || one.content !== other.content || one.tag !== other.tag || one.hidden !== other.hidden) return false;
  return one.info === other.info && one.attrs?.join() === other.attrs?.join();
}

/** Make the element of a token, and append it. */
function made(token, parent, cites) {
  if (token.hidden) return { into: parent }; // the paragraph of a tight list
  if (token.type === "fence" || token.type === "code_block") {
    const code = new CodeBlock(token.info.trim().split(/\s+/)[0]);
    code.show(codeOf(token));
    return { node: parent.appendChild(code.element), code };
  }
  if (token.type === "table_open") {
    const { element, table } = tableOf();
    return { node: parent.appendChild(element), into: table };
  }
  if (token.type === "footnote_open") {
    const { element, into } = noteOf(token.info);
    return { node: parent.appendChild(element), into };
  }
  const node = parent.appendChild(token.nesting === 1 ? opened(token) : leaf(token, cites));
  return { node, into: node };
}

function codeOf(token) {
  return readable(token.content.replace(/\n$/, ""));
}

/** The element that a token opens, which receives the content until it is closed. */
function opened(token) {
  if (token.type === "heading_open") return h(`h${Math.min(6, Number(token.tag[1]) + 2)}`);
  if (token.type === "link_open") return linkTo(token.attrGet("href") ?? "");
  const element = h(TAGS.has(token.tag) ? token.tag : "span");
  const align = /text-align:(\w+)/.exec(token.attrGet("style") ?? "");
  if (align) element.style.textAlign = align[1];
  if (token.tag === "ol" && token.attrGet("start") !== null) element.start = Number(token.attrGet("start"));
  return element;
}

function linkTo(href) {
  if (!WEB.test(href)) return h("span", { class: "no-link", title: href });
  return h("a", { href, target: "_blank", rel: "noopener noreferrer", title: href });
}

function leaf(token, cites) {
  switch (token.type) {
    case "code_inline":
      return inlineCode(token.content, cites);
    case "formula":
      return token.info ? h("span", {}, token.content) : formulaOf("span", token.content);
    case "formula_block":
      return formulaOf("div", token.content);
    case "footnote_reference":
      return referenceTo(token.info);
    case "task":
      return h("input", { type: "checkbox", class: "task", disabled: true, checked: Boolean(token.content),
        "aria-label": token.content ? t("Done") : t("To do") });
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
function inlineCode(text, cites) {
  const element = h("code", {}, readable(text));
  const href = cites(text);
  return href ? h("a", { class: "place", href }, element) : element;
}

/** Show a picture that is an attachment or a part of the text. Of others, which are on other hosts, nothing is loaded: show the
 * address. */
function picture(token) {
  const src = token.attrGet("src") ?? "";
  const name = readable(token.content);
  if (OWN_PICTURE.test(src)) return h("img", { class: "shown", src, alt: name || t("Picture"), loading: "lazy" });
  const link = linkTo(src);
  link.classList.add("picture");
  link.append(name ? t("Picture: {name}", { name }) : t("Picture without a name"));
  return link;
}

/** The markers of the gateway's own sections in a note. */
const MARKS = /^<!-- exuvia [0-9a-f]{16} -->$/gm;

/** Return an element of this class with the rendered text, and with `lines` the innermost elements of these lines, too. */
export function renderMarkdown(kind, text) {
  return renderLines(kind, text).element;
}

export function renderLines(kind, text, first = 0, last = 0) {
  const element = h("div", { class: `prose ${kind}` });
  const markdown = new Markdown(element);
  markdown.show(text.replace(MARKS, "")); // its line stays, so that the others keep their numbers
  return { element, lines: first ? markdown.atLines(first, last) : [] };
}
