// Formulas, drawn by KaTeX, which is loaded with the first one. What it cannot draw stays as it was written.
//
// A formula cannot follow links, load pictures or set attributes (`trust`), define macros, or be larger than a page: KaTeX takes
// time for what is expanded, so only short formulas are drawn, and in one frame only some.
import { h } from "../elements.js";

const LONGEST = 2000; // characters
const TALLEST = 60; // em
const SLICE = 6; // milliseconds in one frame
const DELIMITERS = /^(?:\\\(([\s\S]*)\\\)|\$\$([\s\S]*)\$\$|\\\[([\s\S]*)\\\]|\$([\s\S]*)\$|(\\begin\{[\s\S]*\}))$/;
const DEFINES = /\\(?:[a-zA-Z]*def|(?:re)?newcommand|providecommand|let|futurelet|global|long)(?![a-zA-Z])/;
const OPTIONS = { trust: false, strict: "ignore", throwOnError: true, maxSize: 20, maxExpand: 200, errorColor: "inherit" };

let katex = null;
let loading = null;
let until = null; // the end of the time for formulas in this frame
const waiting = [];

/** Return the element of a formula, which is shown as it was written until it is drawn. */
export function formulaOf(tag, source) {
  const element = h(tag, { class: "formula", "data-source": source }, source);
  const [, ...inside] = DELIMITERS.exec(source.trim()) ?? [];
  const text = inside.find((each) => each !== undefined);
  if (text === undefined || source.length > LONGEST || DEFINES.test(text)) return element;
  waiting.push({ element, text, display: /^(?:\$\$|\\\[|\\begin)/.test(source) });
  work();
  return element;
}

function work() {
  if (!katex) {
    loading ??= load();
    return;
  }
  if (until === null) {
    until = performance.now() + SLICE;
    requestAnimationFrame(() => {
      until = null;
      if (waiting.length) work();
    });
  }
  while (waiting.length && performance.now() < until) draw(waiting.shift());
}

async function load() {
  const href = new URL("../vendor/katex.css", import.meta.url).href;
  const sheet = new Promise((resolve, reject) => document.head.append(h("link", { rel: "stylesheet", href, on: { load: resolve, error: reject } })));
  await Promise.all([import("../vendor/katex.js"), sheet]);
  katex = globalThis.katex;
  work();
}

function draw({ element, text, display }) {
  try {
    const tree = katex.__renderToDomTree(text, { ...OPTIONS, displayMode: display });
    check(tree);
    element.replaceChildren(tree.toNode());
    element.classList.add(display ? "display" : "inline");
  } catch {
    // a mistake in the formula, or too much nesting: it stays as it was written
  }
}

/** Drop what the page's policy does not allow: style attributes, of MathML only, as KaTeX sets those of HTML one by one. Throws an
 * Error if a part is larger than any formula. */
function check(node) {
  if (Math.abs(node.height ?? 0) > TALLEST || Math.abs(node.depth ?? 0) > TALLEST) throw new RangeError("too large");
  delete node.attributes?.style;
  node.children?.forEach(check);
}
