// A plugin of markdown-it: text that is not Markdown stays as it was written.
//
// Models write formulas, identifiers, expressions, paths and glob patterns into prose, and CommonMark drops characters from them.
// The terminal reads answers by the same rules (gateway/terminal/markdown_parser.py). No rule looks at a character more than a few times,
// however long a text is.

const PAIRS = { "\\(": "\\)", "\\[": "\\]", "$$": "$$" };
const IN_DOLLARS = /\$(?=\S)(?:\\[^\n]|[^$\\\n`\s]|[^\S\n](?!\$))+\$(?!\d)/y; // Pandoc's rule: no space inside the delimiters, no digit after them
const BEGINS_BLOCK = /^(?:\$\$|\\\[|\\begin\{([A-Za-z]{1,30}\*?)\})/;
const IDENTIFIER = /_{1,2}[A-Za-z0-9]+(?:_+[A-Za-z0-9]+)*_{1,2}(?![A-Za-z0-9_])/y;
const EMPHASIS = /^(?:_[^_]*_|__[A-Z][a-z]*__)$/; // a word of prose
const ALWAYS = /[*_`~<>$]/;
const AT_LINE_START = /[#>+-]/;
const SCHEME = /^[a-z][a-z0-9+.-]{0,30}:/i;
const SCHEMES = /^(?:https?|ftp|mailto|file|data):/i; // the renderer decides which of these can be followed
const ENDINGS = /^(?:s|es|ed|ing|ly)(?!\w)/;

/** Make a parser leave text alone that is not Markdown. */
export function verbatim(parser) {
  parser.disable("reference"); // "[12:03]: done" would disappear, as the definition of a link
  parser.linkify.set({ fuzzyLink: false, fuzzyEmail: false }); // README.md is a file, not a host in Moldova
  const valid = parser.validateLink;
  parser.validateLink = (url) => valid(url) && (SCHEME.test(url) ? SCHEMES.test(url) : /[/.#?]/.test(url)); // not handlers[name](event)
  parser.block.ruler.before("fence", "formula", formulaBlock, { alt: ["paragraph", "blockquote", "list"] });
  parser.inline.ruler.before("escape", "formula", formula);
  parser.inline.ruler.before("escape", "backslash", backslash);
  parser.inline.ruler.before("emphasis", "identifier", identifier);
  const { State } = parser.inline;
  parser.inline.State = class extends State {
    scanDelims(start, splitsWords) {
      const found = super.scanDelims(start, splitsWords);
      const before = this.src[start - 1] ?? " ";
      const after = this.src.slice(start + found.length, start + found.length + 5);
      return { ...found, can_open: found.can_open && mayOpen(before, after), can_close: found.can_close && mayClose(before, after) };
    }
  };
}

/** Return whether emphasis may begin between these: not in `x**2`, `/*.log`, `.*foo`, `COUNT(*)` or `**` + `/*.py`. */
function mayOpen(before, after) {
  if (/^[^\x00-\x7f]/.test(after)) return true; // scripts without spaces have it anywhere
  return !/[A-Za-z0-9./\\)\]}%&^]/.test(before) && !/^(?:[")\]},;:=>|\\]|\/\*)/.test(after);
}

/** Return whether emphasis may end between these: not in `(*)`, `/*.py`, `x**2` or `2*(x)`, but in `**API**s`. */
function mayClose(before, after) {
  if (/[([{]/.test(before) || (before === "/" && /^\.?\w/.test(after)) || (/\d/.test(before) && after[0] === "(")) return false;
  return !(/[A-Za-z0-9)\]]/.test(before) && /^[A-Za-z0-9]/.test(after)) || ENDINGS.test(after);
}

function formula(state, silent) {
  const { src, pos, posMax } = state;
  const close = PAIRS[src.slice(pos, pos + 2)];
  let end = 0;
  if (close) end = next(state, close, pos + 3) + 2;
  else if (src[pos] === "$" && !/[A-Za-z0-9]/.test(src[pos - 1] ?? "")) end = pos + (found(IN_DOLLARS, src, pos)?.length ?? 0);
  if (end <= pos || end > posMax) return false;
  if (!silent) {
    const token = state.push("formula", "", 0);
    token.content = src.slice(pos, end);
    if (!close && isProse(token.content.slice(1, -1), src[end] ?? "")) token.info = "prose";
  }
  state.pos = end;
  return true;
}

/** Return whether a text between dollars is none of a formula: `$HOME/$USER`, `from $5 to 10$`. */
function isProse(text, after) {
  return /[/:=,;-]$/.test(text) || /[A-Zabcefgjklmopquvwxyz_{(]/.test(after) || (/^\d/.test(text) && / [A-Za-z]{2}/.test(text));
}

/** The next position of a mark, searched once and cached. */
function next(state, mark, from) {
  const known = (state.marks ??= {})[mark];
  if (known && known.from <= from && from <= known.at) return known.at;
  const at = state.src.indexOf(mark, from);
  state.marks[mark] = { from, at: at < 0 ? Infinity : at };
  return state.marks[mark].at;
}

/** Drop a backslash only before a character that it escapes: `\,` and `C:\` are kept. */
function backslash(state, silent) {
  const { src, pos } = state;
  if (src[pos] !== "\\") return false;
  const escaped = src[pos + 1] ?? "";
  if (ALWAYS.test(escaped)) return false;
  const start = src.slice(Math.max(0, pos - 10), pos);
  const begins = start.includes("\n") || pos <= 10 ? start.slice(start.lastIndexOf("\n") + 1).trim() : "a longer line";
  if ((AT_LINE_START.test(escaped) && !begins) || (escaped === "." && /^\d+$/.test(begins)) || src.startsWith("![", pos + 1)) return false;
  // Skip the escaped character too if it is markup: \[ begins no link, \] ends none.
  return keep(state, silent, /[[\]\\]/.test(escaped) ? 2 : 1);
}

function identifier(state, silent) {
  const { src, pos } = state;
  if (src[pos] !== "_" || /[A-Za-z0-9_]/.test(src[pos - 1] ?? "")) return false;
  const name = found(IDENTIFIER, src, pos);
  return Boolean(name) && pos + name.length <= state.posMax && !EMPHASIS.test(name) && keep(state, silent, name.length);
}

function keep(state, silent, length) {
  if (!silent) state.pending += state.src.slice(state.pos, state.pos + length);
  state.pos += length;
  return true;
}

function found(sticky, text, at) {
  sticky.lastIndex = at;
  return sticky.exec(text)?.[0];
}

/**
 * Parse a formula that spans lines, whose lines are no list, heading or rule. It ends at its closing delimiter, or before an
 * empty line, so that later text never changes it.
 */
function formulaBlock(state, startLine, endLine, silent) {
  if (state.sCount[startLine] - state.blkIndent >= 4) return false;
  const first = lineOf(state, startLine);
  const begins = BEGINS_BLOCK.exec(first);
  if (!begins) return false;
  const close = PAIRS[begins[0]] ?? `\\end{${begins[1]}}`;
  if (first.includes(close, begins[0].length)) return false;
  if (silent) return true;
  let end = startLine + 1;
  while (end < endLine && !state.isEmpty(end) && state.sCount[end] >= state.blkIndent) if (lineOf(state, end++).includes(close)) break;
  const token = state.push("formula_block", "", 0);
  token.content = state.getLines(startLine, end, state.blkIndent, false).trimEnd();
  token.map = [startLine, end];
  state.line = end;
  return true;
}

function lineOf(state, line) {
  return state.src.slice(state.bMarks[line] + state.tShift[line], state.eMarks[line]);
}
