// One turn's exact requests, and one compaction's before and after, shown below the plot.

import { button, guarded } from "./controls.js";
import { NAMES } from "./context_plot.js";
import { fill, h, readable } from "./elements.js";
import { LongText } from "./long_text.js";
import { renderMarkdown } from "./markdown.js";
import { count, counted, sentence, when } from "./format.js";

const WHO = {
  summary: "Summary",
  recalled: "Recalled",
  user: "Person",
  assistant: "Assistant",
  tool: "Tool",
};

/** The context changes in a turn, each as a sentence; a compaction can be opened. */
export function contextChanges(marks, look) {
  return marks.map((mark) => h("li", {}, h("span", { class: `swatch tickmark ${mark.kind}` }), describeChange(mark), openCompaction(mark, look)));
}

function describeChange(mark) {
  switch (mark.kind) {
    case "pruned":
      return `${counted(mark.edits, "message")} shortened, ${count(mark.saved ?? 0)} characters saved.  `;
    case "flushed":
      return `Memory flush before compaction ${mark.compaction}: ${mark.said}.  `;
    case "compacted":
      return `Compaction ${mark.compaction}: from ${count(mark.before)} to ${count(mark.after)} tokens. `;
    case "abandoned":
      return `Compaction ${mark.compaction} failed:  ${mark.said} `;
    default:
      return mark.compaction ? `Reverted to compaction ${mark.compaction}. ` : "All compactions were reverted. ";
  }
}

function openCompaction(mark, look) {
  if (mark.kind !== "compacted") return null;
  return button("Before and after", () => look(mark.compaction), { class: "worded" });
}

/** The panel of a turn. `at` has the `api`, the `place` (the path of the session's context), the `session`,
 * and `inLog(seq)`, the original text of an event. `look(number)` shows a compaction. */
export class TurnPanel {
  constructor(at, turn, parts, marks, look) {
    this.at = at;
    this.address = `${at.place}/turns/${turn.turn}`;
    this.turn = turn;
    this.messages = h("ol", { class: "request-rows" });
    this.requests = h("div", { class: "requests" });
    this.element = h(
      "section",
      { class: "turn-panel", "aria-labelledby": "turn-heading" },
      h("h2", { id: "turn-heading", tabIndex: -1 }, `Turn ${turn.turn}`),
      h("p", { class: "about" }, about(turn)),
      shares(turn, parts),
      marks.length ? h("ul", { class: "context-changes" }, contextChanges(marks, look)) : null,
      this.requests,
      this.messages,
    );
    this.load(null);
  }

  query(more) {
    return new URLSearchParams({ session: this.at.session, ...more }).toString();
  }

  async load(call) {
    fill(this.requests, h("p", { class: "waiting", role: "status" }, "Rebuilding the request from the log…"));
    try {
      const shown = await this.at.api.get(`${this.address}?${this.query(call ? { call } : {})}`);
      this.show(shown);
    } catch (error) {
      fill(this.requests, h("p", { role: "alert" }, sentence(error)));
      fill(this.messages);
    }
  }

  show(shown) {
    const call = shown.calls[shown.shown - 1];
    const file = `${this.address}/request.json?${this.query({ call: shown.shown })}`;
    fill(
      this.requests,
      h("h3", {}, shown.calls.length > 1 ? `Request ${shown.shown} of ${shown.calls.length}` : "The request"),
      shown.calls.length > 1 ? this.choices(shown) : null,
      h(
        "p",
        { class: "verdict" },
        call.agrees
          ? h("strong", { class: "agrees" }, "Byte-identical")
          : h("strong", { class: "differs", role: "alert" }, "Differs from the log"),
        call.agrees
          ? " to the request that was sent: the hash of the rebuilt request is the logged one. "
          : ": the hash of the rebuilt request is not the logged one. ",
        h("a", { href: file, download: "" }, "Exact bytes (JSON)"),
      ),
      h("p", { class: "hash" }, `sha256 ${call.sha256}`),
    );
    fill(this.messages, this.standing(shown), this.earlier(shown), shown.rows.map((row) => this.row(row, shown.shown)));
  }

  choices(shown) {
    const choice = (call) =>
      button(`${call.call}: ${count(call.tokens)} tokens`, () => this.load(call.call), {
        "aria-pressed": String(call.call === shown.shown),
      });
    return h("div", { class: "calls-of-turn", role: "group", "aria-label": "Requests of this turn" }, shown.calls.map(choice));
  }

  standing(shown) {
    const tools = shown.tools.map((tool) => `${tool.name}: ${tool.description}`).join("\n\n");
    const parameters = Object.entries(shown.parameters).map(([name, value]) => `${name} = ${value}`).join("\n");
    return [
      unfolding("Instructions", shown.instructions.slice(0, 120), shown.instructions.length, () => shown.instructions),
      shown.tools.length ? unfolding("Tools", shown.tools.map((tool) => tool.name).join(", "), tools.length, () => tools) : null,
      parameters ? unfolding("Parameters", parameters, parameters.length, () => parameters) : null,
    ];
  }

  earlier(shown) {
    if (!shown.first) return null;
    const item = h("li", { class: "earlier" });
    const more = async () => {
      try {
        const before = await this.at.api.get(`${this.address}?${this.query({ call: shown.shown, before: shown.first })}`);
        item.replaceWith(...[this.earlier(before)].filter(Boolean), ...before.rows.map((row) => this.row(row, shown.shown)));
      } catch (error) {
        fill(item, h("p", { role: "alert" }, sentence(error)));
      }
    };
    return fill(item, button(counted(shown.first, "earlier message"), more));
  }

  row(row, call) {
    const whole = async () => {
      if (row.chars <= row.text.length) return row.text;
      return (await this.at.api.get(`${this.address}/messages/${row.index}?${this.query({ call })}`)).text;
    };
    return messageRow(row, whole, this.at.inLog);
  }
}

/** Return a message that can be unfolded. `whole` returns its whole text, `inLog(seq)` the original if that is longer. */
export function messageRow(row, whole, inLog) {
  const who = `${WHO[row.who] ?? row.who}${row.tool ? `: ${row.tool}` : ""}`;
  const calls = (row.calls ?? []).map((call) => `→ ${call}`);
  const beginning = [row.text, ...calls].filter(Boolean).join(" ") || (row.files ? counted(row.files, "file") : "(empty)");
  const notes = [edited(row), row.failed ? "failed" : "", row.files ? counted(row.files, "file") : ""].filter(Boolean);
  const text = async () => [await whole(), ...calls].filter(Boolean).join("\n");
  const original = row.edit ? () => inLog(row.source) : null;
  return unfolding(who, beginning, row.chars, text, { notes, kind: row.who, original });
}

function edited(row) {
  if (!row.edit) return "";
  const how = row.edit.how === "clear" ? "cleared" : "trimmed";
  return `${how} from ${count(row.size)} by ${row.edit.by || "a plugin"}`;
}

function unfolding(who, beginning, chars, whole, { notes = [], kind = "standing", original = null } = {}) {
  const place = h("div", { class: "whole" });
  const open = async (event) => {
    if (!event.target.open || place.childElementCount) return;
    try {
      const text = await whole();
      if (place.childElementCount) return;
      new LongText(place).show(text);
      if (original) place.append(button("Show the original", (click) => uncut(click.target), { class: "worded" }));
    } catch (error) {
      place.textContent = sentence(error);
    }
  };
  const uncut = async (asked) => {
    const found = h("div", {});
    asked.replaceWith(found);
    try {
      new LongText(found).show(await original());
    } catch (error) {
      found.textContent = sentence(error);
    }
  };
  return h(
    "li",
    { class: `request-row ${kind}` },
    h(
      "details",
      { on: { toggle: open } },
      h(
        "summary",
        {},
        h("span", { class: "speaker" }, readable(who)),
        h("span", { class: "beginning" }, readable(beginning.slice(0, 300))),
        notes.map((note) => h("span", { class: "row-note" }, note)),
        h("span", { class: "chars" }, `${count(chars)} chars`),
      ),
      place,
    ),
  );
}

function about(turn) {
  const answered = turn.outcome ? `, ${turn.outcome}` : ", running";
  const known = turn.counted == null ? "" : `; the provider counted ${count(turn.counted)}`;
  return `${when(turn.at)}, ${readable(turn.model)}${answered}. About ${count(turn.tokens)} tokens in ${counted(turn.messages, "message")}${known}.`;
}

function shares(turn, parts) {
  const rows = parts.map((name, index) => {
    const tokens = turn.parts[index];
    if (!tokens) return null;
    const share = turn.tokens ? (100 * tokens) / turn.tokens : 0;
    return h(
      "tr",
      {},
      h("th", { scope: "row" }, h("span", { class: `swatch ${name}` }), NAMES[name]),
      h("td", {}, count(tokens)),
      h("td", {}, `${share.toFixed(share && share < 10 ? 1 : 0)} %`),
    );
  });
  return h(
    "table",
    { class: "shares" },
    h("caption", {}, "Contents"),
    h("thead", {}, h("tr", {}, ["Part", "Tokens", "Share"].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, rows),
  );
}

/** The panel of a compaction. `revert(number)` reverts it and resolves with the gateway's answer (null if it cannot), `above` is how many
 * in force were made on top of it. */
export class CompactionPanel {
  constructor(at, number, { revert, above }) {
    this.at = at;
    this.above = above;
    this.revert = revert;
    this.number = number;
    this.element = h(
      "section",
      { class: "compaction-panel", "aria-labelledby": "compaction-heading" },
      h("h2", { id: "compaction-heading", tabIndex: -1 }, `Compaction ${number}`),
    );
    this.body = h("div", {}, h("p", { class: "waiting", role: "status" }, "Reading the log…"));
    this.element.append(this.body);
    this.load();
  }

  async load() {
    try {
      this.show(await this.at.api.get(`${this.at.place}/compactions/${this.number}?session=${encodeURIComponent(this.at.session)}`));
    } catch (error) {
      fill(this.body, h("p", { role: "alert" }, sentence(error)));
    }
  }

  show(shown) {
    const entry = shown.entry;
    this.answer = h("p", { class: "revert-answer", role: "status" });
    fill(
      this.body,
      h("p", { class: "about" }, describeCompaction(shown)),
      proportion(entry),
      this.taking(entry),
      this.answer,
      h(
        "div",
        { class: "before-after" },
        h(
          "div",
          {},
          h("h3", {}, `Before: ${counted(shown.left, "message")}`),
          h("ol", { class: "request-rows" }, omitted(shown), shown.rows.map((row) => this.row(row))),
        ),
        h(
          "div",
          {},
          h("h3", {}, "After: the summary"),
          renderMarkdown("summary-text", entry.summary),
          lost(entry),
        ),
      ),
    );
  }

  /** Return a message that was removed. The log may have more of it than the model saw. */
  row(row) {
    const isWhole = row.chars <= row.text.length;
    const whole = async () => (isWhole || !row.source || row.edit ? beginning(row) : this.at.inLog(row.source));
    return messageRow(row, whole, this.at.inLog);
  }

  /** The button that reverts it, with a confirmation. */
  taking(entry) {
    if (!this.revert) return null;
    if (!entry.in_force) return h("p", { class: "progress" }, "Reverted: the model sees these messages again.");
    const those = this.above ? ` The ${counted(this.above, "later compaction")} will be reverted too.` : "";
    const question = `Show the model these messages again instead of the summary?${those}`;
    return h("p", {}, guarded("Revert this compaction…", question, "Revert", (place) => this.take(place)));
  }

  async take(place) {
    fill(place, h("span", { class: "waiting" }, "Reverting…"));
    try {
      const answered = await this.revert(this.number);
      await this.load();
      this.answer.textContent = answered;
    } catch (error) {
      fill(place, h("span", { role: "alert" }, sentence(error)));
    }
  }
}

function describeCompaction({ entry, focus, flush, stayed }) {
  const sentences = [
    `${when(entry.at)}, because ${entry.why}.`,
    `Summary written by ${entry.by}${entry.model ? ` with ${entry.model}` : ""};`,
    `${counted(stayed, "message")} kept unchanged.`,
    focus ? `Focus: ${focus}.` : "",
    flush ? `Memory flush before it: ${flush}.` : "",
    entry.failed ? `The model's own summary was rejected: ${entry.failed}` : "",
    entry.checks?.length ? `Problems found: ${entry.checks.join(" ")}` : "",
  ];
  return readable(sentences.filter(Boolean).join(" "));
}

/** Two bars: the size before, and after. */
function proportion(entry) {
  const bar = (name, tokens) => [
    h("dt", {}, name),
    h("dd", {}, h("meter", { min: 0, max: Math.max(entry.tokens_before, 1), value: tokens }), ` ${count(tokens)} tokens`),
  ];
  return h("dl", { class: "proportion" }, bar("Before", entry.tokens_before), bar("After", entry.tokens_after));
}

function omitted(shown) {
  const more = shown.left - shown.rows.length;
  return more > 0 ? h("li", { class: "earlier" }, `${counted(more, "earlier message")}`) : null;
}

function beginning(row) {
  return row.chars > row.text.length ? `${row.text}\n… (${count(row.chars)} characters in total)` : row.text;
}

function lost(entry) {
  if (!entry.lost?.length) return null;
  return h("p", { class: "lost" }, `Identifiers missing from the summary: ${readable(entry.lost.join(", "))}`);
}
