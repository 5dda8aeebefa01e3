// Syntax highlighting. The tokens of highlight.js become elements, not markup.
//
// Code is highlighted piece by piece, because the time of highlight.js grows with the square of a text. The last piece is
// highlighted again while it grows; those before it are final. A piece of whole lines is a block, so that a browser lays out
// only the last one again.
import { h } from "../elements.js";
import hljs from "../vendor/highlight.js";

const PIECE = 3000; // characters highlighted at once
const LEAST = 200;
const MILLISECONDS = 300; // for all pieces; code that takes longer stays plain
const SLICE = 5; // milliseconds in one frame
const LIVE = 4; // milliseconds for a piece that grows; one that takes longer is highlighted once it is complete

/** Highlights a `<code data-language=…>` if the language is known. The class `coloured` says that it is done. */
export class Highlighter {
  constructor(place) {
    this.place = place;
    this.language = place.dataset.language.toLowerCase();
    this.left = hljs.getLanguage(this.language) ? MILLISECONDS : 0;
    this.longest = PIECE;
    this.restart();
  }

  restart() {
    this.text = "";
    this.place.replaceChildren();
    this.begin(0);
  }

  /** Begin a piece at a position of the text. */
  begin(start) {
    this.start = start;
    this.tokens = []; // of the beginning of the piece, up to `coloured`
    this.coloured = start;
    this.slow = false;
    this.plain = document.createTextNode("");
    const wholeLines = start === 0 || this.text[start - 1] === "\n";
    this.piece = this.place.appendChild(h("span", { class: wholeLines ? "lines" : null }, this.plain));
  }

  /** Show a text, which may still grow unless it is `whole`. Of a long one some is highlighted now, the rest in the next animation
   * frames. */
  show(text, whole = false) {
    if (!text.startsWith(this.text.slice(0, this.start))) this.restart();
    else if (!text.startsWith(this.text.slice(0, this.coloured))) this.draw([], this.start);
    this.text = text;
    this.whole = whole;
    if (!this.frame) this.work();
    else this.plain.data = text.slice(this.coloured);
  }

  work() {
    this.frame = null;
    const until = performance.now() + SLICE;
    while (this.left > 0 && this.text.length - this.start > this.longest) {
      if (performance.now() > until) {
        this.plain.data = this.text.slice(this.coloured);
        this.frame = requestAnimationFrame(() => this.work());
        return;
      }
      const end = endOfPiece(this.text, this.start, this.longest);
      this.left -= this.highlight(end);
      this.plain.data = "";
      if (this.text[end - 1] !== "\n") this.piece.removeAttribute("class");
      this.begin(end);
    }
    if (this.left > 0 && (this.whole || !this.slow)) this.slow = this.highlight(this.text.length) > LIVE;
    if (this.slow) this.longest = Math.max(LEAST, Math.min(this.longest, (this.text.length - this.start) >> 1));
    this.plain.data = this.text.slice(this.coloured);
    if (this.whole) this.place.classList.add("coloured");
  }

  /** Highlight the piece up to a position; return the milliseconds that this took. */
  highlight(end) {
    const before = performance.now();
    const found = hljs.highlight(this.text.slice(this.start, end), { language: this.language, ignoreIllegals: true });
    this.draw(found._emitter.rootNode.children, end);
    return performance.now() - before;
  }

  /** Show the tokens of the piece up to a position; elements of tokens that stay the same stay. */
  draw(tokens, end) {
    let same = 0;
    while (same < this.tokens.length && same < tokens.length && equal(this.tokens[same], tokens[same])) same++;
    while (this.piece.childNodes.length > same + 1) this.plain.previousSibling.remove();
    this.plain.before(...tokens.slice(same).map(built));
    this.tokens = tokens;
    this.coloured = end;
  }
}

/** Return the end of the piece that begins at `at`: best is the last unindented line after an empty one, then any line after an
 * empty one, then any line. */
function endOfPiece(text, at, longest) {
  const within = text.slice(at, at + longest + 1);
  let end = within.lastIndexOf("\n\n", longest - 2);
  const empty = end;
  while (end > 0 && /\s/.test(within[end + 2])) end = within.lastIndexOf("\n\n", end - 1);
  if (end > 0) return at + end + 2;
  if (empty > 0) return at + empty + 2;
  const line = within.lastIndexOf("\n", longest - 1);
  if (line > 0) return at + line + 1;
  return at + longest - (/[\ud800-\udbff]/.test(within[longest - 1]) ? 1 : 0);
}

function equal(one, other) {
  if (typeof one === "string" || typeof other === "string") return one === other;
  return one.scope === other.scope && one.children.length === other.children.length && one.children.every((child, at) => equal(child, other.children[at]));
}

function built(node) {
  if (typeof node === "string") return document.createTextNode(node);
  const scope = node.scope ? `c-${node.scope.split(".")[0].replaceAll("_", "")}` : null;
  return h("span", { class: scope }, node.children.map(built));
}
