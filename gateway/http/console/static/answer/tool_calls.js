// Tool calls: each is one line (tool, main argument, result, time) that unfolds to its arguments, output and changes.
import { files } from "../chat/attachments.js";
import { fill, h, readable, withoutEscapes } from "../elements.js";
import { count, duration } from "../format.js";
import { icon } from "../icons.js";
import { t, tn } from "../language.js";
import { LongText } from "../long_text.js";
import { drawPassages, passagesOf } from "./passages.js";

const MAIN = ["command", "path", "url", "query", "code"]; // gateway/support/sentences.py has the same list
const GIVEN = 200; // characters of the arguments on the line of a call
const BRIEF = 60; // characters of the longest argument beside its name, and of the longest result on the line of its call
const LIVE = 20_000; // characters of a running tool's output that are shown
const DIFF_LINES = 400; // lines of a diff that are shown at once
const OUTCOMES = { failed: t("failed"), refused: t("refused"), unknown: t("outcome unknown") };

/** One call. `call` is that of a transcript: `tool, arguments, state`; once it runs `since` (milliseconds) and `live` (the
 * output so far); once it has returned `output, cutFrom, whole, millis, exitCode, diff, attachments`. */
export class ToolCall {
  /** `acts` and `entry` are those of the timeline. */
  constructor(call, acts = {}, entry = {}) {
    this.acts = acts;
    this.entry = entry;
    this.mark = h("span", { class: "mark" }, icon("tool"));
    this.outcome = h("span", { class: "outcome" });
    this.took = h("span", { class: "took" });
    this.inside = h("div", { class: "inside" });
    const given = h("span", { class: "given" }, readable(briefly(call.arguments)));
    const summary = h("summary", {}, this.mark, h("b", {}, readable(call.tool)), given, this.outcome, this.took);
    this.details = h("details", { on: { toggle: () => this.unfold() } }, summary, this.inside);
    this.pictures = h("div", {});
    this.element = h("div", { class: "call" }, this.details, this.pictures);
    this.update(call);
  }

  /** Show a call in a new state. The element stays, and with it the focus and whether it is unfolded. */
  update(call) {
    this.call = call;
    if (this.state === call.state) return;
    this.state = call.state;
    clearInterval(this.timer);
    if (call.state === "running") this.timer = setInterval(() => this.tick(), 1000);
    this.element.dataset.state = call.state;
    this.element.classList.toggle("faulty", call.state in OUTCOMES || Boolean(call.exitCode));
    fill(this.outcome, resultOf(call).map((part, at) => [at ? " · " : "", part]));
    fill(this.pictures, files(call.attachments));
    this.drawn = false;
    this.unfold();
    this.tick();
  }

  /** Show the output that has arrived since. */
  grow() {
    if (!this.live || !this.details.open) return;
    const { scrollHeight, scrollTop, clientHeight } = this.live;
    this.live.textContent = withoutEscapes(this.call.live?.text.slice(-LIVE) ?? "") || "(nothing yet)";
    if (scrollHeight - scrollTop - clientHeight < 40) this.live.scrollTop = this.live.scrollHeight;
  }

  tick() {
    const { state, since, millis } = this.call;
    if (state === "running" && !this.element.isConnected && this.shown) clearInterval(this.timer); // it was removed
    this.shown ||= this.element.isConnected;
    this.took.textContent = state === "running" ? duration(Math.max(0, Date.now() - since), 1000) : duration(millis);
  }

  unfold() {
    if (!this.details.open || this.drawn) return this.grow();
    this.drawn = true;
    this.live = null;
    fill(this.inside);
    for (const [name, value] of argumentsOf(this.call.arguments)) this.drawArgument(name, readable(value));
    if (this.call.state === "running") this.drawLive();
    else if (this.call.state !== "asked") this.drawResult();
  }

  drawArgument(name, value) {
    if (value.length <= BRIEF && !value.includes("\n")) {
      this.inside.append(h("p", { class: "label" }, readable(name), " ", h("code", {}, value)));
      return;
    }
    this.label(name);
    new LongText(this.inside).show(value);
  }

  drawLive() {
    this.label(t("Output so far"));
    this.live = h("pre", { class: "long", tabIndex: 0 });
    this.inside.append(this.live);
    this.grow();
    this.live.scrollTop = this.live.scrollHeight;
  }

  drawResult() {
    const { tool, output, diff, cutFrom, whole } = this.call;
    if (diff) {
      this.label(t("Changes"));
      drawDiff(this.inside, diff);
    }
    this.label(cutFrom ? t("Result (the head and tail of {count} bytes)", { count: count(cutFrom) }) : t("Result"));
    const passages = passagesOf(this.call);
    if (passages) this.inside.append(...drawPassages(passages, parsed(this.call.arguments)?.query, this.acts, this.entry).flat());
    else new LongText(this.inside).show(withoutEscapes(output) || t("(nothing)"));
    if (whole) this.inside.append(h("a", { class: "file", href: `/attachments/${whole}`, download: `${readable(tool)}.txt` }, icon("attach"), t("The whole result")));
  }

  label(text) {
    this.inside.append(h("p", { class: "label" }, readable(text)));
  }
}

/** Return the sentence that tells a screen reader that a call has returned. */
export function spoken(call) {
  const result = [...resultOf(call).map((part) => part.textContent ?? part), duration(call.millis)].filter(Boolean);
  return `${readable(call.tool)}: ${result.join(", ")}`;
}

/** Return the result of a call in a few words, as nodes and texts. */
function resultOf({ state, output, diff, exitCode }) {
  if (state === "asked" || state === "running") return [];
  const parts = [];
  if (OUTCOMES[state]) parts.push(OUTCOMES[state]);
  if (exitCode !== undefined && exitCode !== null) parts.push(t("exit {code}", { code: exitCode }));
  if (diff) {
    const { added, removed } = sizeOf(diff);
    parts.push(h("span", {}, h("span", { class: "added" }, `+${added}`), " ", h("span", { class: "removed" }, `−${removed}`)));
  } else if (state === "returned") parts.push(sizeOrLine(withoutEscapes(output).trimEnd()));
  return parts;
}

function sizeOrLine(text) {
  if (!text) return t("nothing");
  const lines = text.split("\n").length;
  return lines === 1 && text.length <= BRIEF ? text : tn(lines, "{count} line", "{count} lines");
}

function sizeOf(diff) {
  const signs = changedLines(diff).map(({ sign }) => sign);
  return { added: signs.filter((sign) => sign === "+").length, removed: signs.filter((sign) => sign === "-").length };
}

/** The lines of a unified diff, each with its sign: "+", "-", " ", or "@" for a line that is not of a file. */
function changedLines(diff) {
  let inHunk = false;
  return diff.replace(/\n$/, "").split("\n").map((line) => {
    if (line.startsWith("@@")) inHunk = true;
    else if (/^(--- |\+\+\+ )/.test(line) && !inHunk) return { sign: "@", line };
    return { sign: inHunk && /^[-+ ]/.test(line) ? line[0] : "@", line };
  });
}

const CLASSES = { "+": "added", "-": "removed", "@": "faint" };

/** Draw a unified diff into an element. The signs are a part of the text: colour is not the only difference. */
export function drawDiff(element, diff) {
  const rows = changedLines(diff);
  const place = h("pre", { class: "long diff", tabIndex: 0 });
  const more = h("button", { class: "worded", type: "button", on: { click: () => show() } });
  let shown = 0;
  const show = () => {
    place.append(...rows.slice(shown, (shown += DIFF_LINES)).map(({ sign, line }) => h("span", { class: CLASSES[sign] }, readable(line) || " ")));
    more.hidden = shown >= rows.length;
    more.textContent = tn(rows.length - shown, "Show more (one line left)", "Show more ({count} lines left)");
  };
  show();
  element.append(place, more);
}

/** The arguments of a call as pairs of name and text; one without a name if they are not a JSON object. */
function argumentsOf(text) {
  const given = parsed(text);
  if (given === null || typeof given !== "object" || Array.isArray(given)) return [[t("Arguments"), text]];
  return Object.entries(given).map(([name, value]) => [name, typeof value === "string" ? value : JSON.stringify(value, null, 2)]);
}

/** The main argument of a call, else all of them with their names, on one line. */
function briefly(text) {
  const given = parsed(text);
  if (given === null || typeof given !== "object") return text.slice(0, GIVEN);
  const main = MAIN.find((name) => typeof given[name] === "string");
  if (main) return given[main].slice(0, GIVEN);
  const parts = Object.entries(given).map(([name, value]) => [name, typeof value === "string" ? value : JSON.stringify(value)]);
  const words = parts.length === 1 ? parts[0][1] : parts.map(([name, value]) => `${name}: ${value}`).join(", ");
  return words.slice(0, GIVEN);
}

function parsed(text) {
  try {
    return JSON.parse(text || "{}");
  } catch {
    return null;
  }
}
