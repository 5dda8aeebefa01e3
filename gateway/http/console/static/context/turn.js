// One turn's exact requests, and one compaction's before and after, shown below the plot.

import { button, guarded } from "../controls.js";
import { NAMES } from "./plot.js";
import { fill, h, readable } from "../elements.js";
import { LongText } from "../long_text.js";
import { renderMarkdown } from "../answer/markdown.js";
import { count, sentence, when } from "../format.js";
import { t, th, tn } from "../language.js";
import { costOfAll, money } from "../money.js";
import { recallReasons } from "./recall.js";

const WHO = {
  summary: t("Summary"),
  recalled: t("Recalled"),
  user: t("Person"),
  assistant: t("Assistant"),
  tool: t("Tool"),
};

/** The context changes in a turn, each as a sentence; a compaction can be opened. */
export function contextChanges(marks, look) {
  return marks.map((mark) => h("li", {}, h("span", { class: `swatch tickmark ${mark.kind}` }), describeChange(mark), openCompaction(mark, look)));
}

function describeChange(mark) {
  switch (mark.kind) {
    case "pruned":
      return `${tn(mark.edits, "One message shortened, {saved} characters saved.", "{count} messages shortened, {saved} characters saved.", { saved: count(mark.saved ?? 0) })} `;
    case "flushed":
      return `${t("Memory flush before compaction {number}: {text}.", { number: mark.compaction, text: mark.said })} `;
    case "compacted":
      return `${t("Compaction {number}: from {before} to {after} tokens.", { number: mark.compaction, before: count(mark.before), after: count(mark.after) })} `;
    case "abandoned":
      return `${t("Compaction {number} failed: {reason}", { number: mark.compaction, reason: mark.said })} `;
    default:
      return `${mark.compaction ? t("Reverted to compaction {number}.", { number: mark.compaction }) : t("All compactions were reverted.")} `;
  }
}

function openCompaction(mark, look) {
  if (mark.kind !== "compacted") return null;
  return button(t("Before and after"), () => look(mark.compaction), { class: "worded" });
}

/** The panel of a turn. `at` has the `api`, the `place` (the path of the session's context), the `session`,
 * and `event(seq)`, an event of the log. `look(number)` shows a compaction. */
export class TurnPanel {
  constructor(at, turn, parts, marks, look) {
    this.at = at;
    this.address = `${at.place}/turns/${turn.turn}`;
    this.turn = turn;
    this.messages = h("ol", { class: "request-rows" });
    this.requests = h("div", { class: "requests" });
    this.compared = h("div", {});
    this.element = h(
      "section",
      { class: "turn-panel", "aria-labelledby": "turn-heading" },
      h("h2", { id: "turn-heading", tabIndex: -1 }, t("Turn {first}", { first: turn.turn })),
      h("p", { class: "about" }, about(turn)),
      spent(at.prices, turn),
      shares(turn, parts),
      marks.length ? h("ul", { class: "context-changes" }, contextChanges(marks, look)) : null,
      this.requests,
      this.compared,
      this.messages,
    );
    this.ready = this.load(null);
  }

  /** Stop the answers that are compared. */
  end() {
    this.ended = true;
    this.whatIf?.end();
  }

  /** Compare answers to the shown request. */
  async compare() {
    const { WhatIf } = await import("./what_if.js");
    if (this.ended) return;
    this.whatIf?.end();
    this.whatIf = new WhatIf(this.at.api, `${this.address}/what-if?${this.query({ call: this.call })}`);
    fill(this.compared, this.whatIf.element);
    this.whatIf.element.querySelector("h3").focus();
  }

  query(more) {
    return new URLSearchParams({ session: this.at.session, ...more }).toString();
  }

  async load(call) {
    fill(this.requests, h("p", { class: "waiting", role: "status" }, t("Rebuilding the request from the log…")));
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
    if (this.call !== shown.shown) {
      this.whatIf?.end();
      fill(this.compared);
    }
    this.call = shown.shown;
    const file = `${this.address}/request.json?${this.query({ call: shown.shown })}`;
    fill(
      this.requests,
      h("h3", {}, shown.calls.length > 1 ? t("Request {number} of {all}", { number: shown.shown, all: shown.calls.length }) : t("The request")),
      shown.calls.length > 1 ? this.choices(shown) : null,
      h(
        "p",
        { class: "verdict" },
        call.erased
          ? t("Content of this request was erased since.")
          : call.agrees
          ? th("{identical} to the request that was sent: the hash of the rebuilt request is the logged one.",
            { identical: h("strong", { class: "agrees" }, t("Byte-identical")) })
          : th("{differs}: the hash of the rebuilt request is not the logged one.",
            { differs: h("strong", { class: "differs", role: "alert" }, t("Differs from the log")) }),
        " ",
        h("a", { href: file, download: "" }, t("Exact bytes (JSON)")),
        " ",
        call.agrees ? button(t("What if…"), () => this.compare(), { class: "worded" }) : null,
      ),
      call.erased ? null : h("p", { class: "hash" }, `sha256 ${call.sha256}`),
    );
    fill(this.messages, this.standing(shown), this.earlier(shown), shown.rows.map((row) => this.row(row, shown.shown)));
  }

  choices(shown) {
    const choice = (call) =>
      button(t("{number}: {tokens} tokens", { number: call.call, tokens: count(call.tokens) }), () => this.load(call.call), {
        "aria-pressed": String(call.call === shown.shown),
      });
    return h("div", { class: "calls-of-turn", role: "group", "aria-label": t("Requests of this turn") }, shown.calls.map(choice));
  }

  standing(shown) {
    const tools = shown.tools.map((tool) => `${tool.name}: ${tool.description}`).join("\n\n");
    const parameters = Object.entries(shown.parameters).map(([name, value]) => `${name} = ${value}`).join("\n");
    return [
      unfolding(t("Instructions"), shown.instructions.slice(0, 120), shown.instructions.length, () => shown.instructions),
      shown.tools.length ? unfolding(t("Tools"), shown.tools.map((tool) => tool.name).join(", "), tools.length, () => tools) : null,
      parameters ? unfolding(t("Parameters"), parameters, parameters.length, () => parameters) : null,
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
    return fill(item, button(tn(shown.first, "one earlier message", "{count} earlier messages"), more));
  }

  row(row, call) {
    const whole = async () => {
      if (row.chars <= row.text.length) return row.text;
      return (await this.at.api.get(`${this.address}/messages/${row.index}?${this.query({ call })}`)).text;
    };
    return messageRow(row, whole, this.at.event, this.at.session);
  }
}

const textOf = (event) => event?.text ?? event?.output ?? "";

/** Return a message that can be unfolded. `whole` returns its whole text, `eventOf(seq)` an event: it has the original if that is longer,
 * and the scores of what was recalled in the memory of the session's agent. */
export function messageRow(row, whole, eventOf, session) {
  const who = `${WHO[row.who] ?? row.who}${row.tool ? `: ${row.tool}` : ""}`;
  const calls = (row.calls ?? []).map((call) => `→ ${call}`);
  const beginning = [row.text, ...calls].filter(Boolean).join(" ") || (row.files ? tn(row.files, "one file", "{count} files") : t("(empty)"));
  const notes = [edited(row), row.failed ? t("failed") : "", row.files ? tn(row.files, "one file", "{count} files") : ""].filter(Boolean);
  const text = async () => [await whole(), ...calls].filter(Boolean).join("\n");
  const original = row.edit ? async () => textOf(await eventOf(row.source)) : null;
  const below = row.who === "recalled" && row.source ? async () => recallReasons(await eventOf(row.source), `session:${session}`) : null;
  return unfolding(who, beginning, row.chars, text, { notes, kind: row.who, original, below });
}

function edited(row) {
  if (!row.edit) return "";
  const values = { size: count(row.size), plugin: row.edit.by || t("a plugin") };
  return row.edit.how === "clear" ? t("cleared from {size} by {plugin}", values) : t("trimmed from {size} by {plugin}", values);
}

function unfolding(who, beginning, chars, whole, { notes = [], kind = "standing", original = null, below = null } = {}) {
  const place = h("div", { class: "whole" });
  const open = async (event) => {
    if (!event.target.open || place.childElementCount) return;
    try {
      const text = await whole();
      if (place.childElementCount) return;
      new LongText(place).show(text);
      if (below) place.append(await below());
      if (original) place.append(button(t("Show the original"), (click) => uncut(click.target), { class: "worded" }));
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
        h("span", { class: "chars" }, tn(chars, "{count} char", "{count} chars")),
      ),
      place,
    ),
  );
}

function about(turn) {
  const shown = { time: when(turn.at), model: readable(turn.model), outcome: turn.outcome || t("running"), tokens: count(turn.tokens) };
  const sum = tn(turn.messages, "{time}, {model}, {outcome}. About {tokens} tokens in one message.",
    "{time}, {model}, {outcome}. About {tokens} tokens in {count} messages.", shown);
  return turn.counted == null ? sum : `${sum} ${t("The provider counted {count}.", { count: count(turn.counted) })}`;
}

/** What a turn used in all of its requests, and what that cost, by model. */
function spent(prices, turn) {
  const used = Object.entries(turn.usage);
  if (!used.length) return null;
  const row = ([model, usage]) => {
    const paid = costOfAll(prices, { [model]: usage });
    return h("tr", {}, h("th", { scope: "row" }, readable(model)), h("td", {}, count(usage.input)), h("td", {}, count(usage.cached)),
      h("td", {}, count(usage.output)), h("td", {}, paid ? money(paid) : t("unknown price")));
  };
  return h("table", { class: "shares" },
    h("caption", {}, t("Used, as the provider counted")),
    h("thead", {}, h("tr", {}, [t("Model"), t("In"), t("Cached"), t("Out"), t("Cost")].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, used.map(row)));
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
    h("caption", {}, t("Contents")),
    h("thead", {}, h("tr", {}, [t("Part"), t("Tokens"), t("Share")].map((name) => h("th", { scope: "col" }, name)))),
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
      h("h2", { id: "compaction-heading", tabIndex: -1 }, t("Compaction {number}", { number })),
    );
    this.body = h("div", {}, h("p", { class: "waiting", role: "status" }, t("Reading the log…")));
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
          h("h3", {}, tn(shown.left, "Before: one message", "Before: {count} messages")),
          h("ol", { class: "request-rows" }, omitted(shown), shown.rows.map((row) => this.row(row))),
        ),
        h(
          "div",
          {},
          h("h3", {}, t("After: the summary")),
          renderMarkdown("summary-text", entry.summary),
          lost(entry),
        ),
      ),
    );
  }

  /** Return a message that was removed. The log may have more of it than the model saw. */
  row(row) {
    const isWhole = row.chars <= row.text.length;
    const whole = async () => (isWhole || !row.source || row.edit ? beginning(row) : textOf(await this.at.event(row.source)));
    return messageRow(row, whole, this.at.event, this.at.session);
  }

  /** The button that reverts it, with a confirmation. */
  taking(entry) {
    if (!this.revert) return null;
    if (!entry.in_force) return h("p", { class: "progress" }, t("Reverted: the model sees these messages again."));
    const question = t("Show the model these messages again instead of the summary?");
    const those = this.above ? tn(this.above, "One later compaction will be reverted too.", "{count} later compactions will be reverted too.") : "";
    return h("p", {}, guarded(t("Revert this compaction…"), `${question} ${those}`, t("Revert"), (place) => this.take(place)));
  }

  async take(place) {
    fill(place, h("span", { class: "waiting" }, t("Reverting…")));
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
    t("{time}, because {reason}.", { time: when(entry.at), reason: entry.why }),
    entry.model ? t("Summary written by {author} with {model}.", { author: entry.by, model: entry.model }) : t("Summary written by {author}.", { author: entry.by }),
    tn(stayed, "One message kept unchanged.", "{count} messages kept unchanged."),
    focus ? t("Focus: {text}.", { text: focus }) : "",
    flush ? t("Memory flush before it: {text}.", { text: flush }) : "",
    entry.failed ? t("The model's own summary was rejected: {reason}", { reason: entry.failed }) : "",
    entry.checks?.length ? t("Problems found: {problems}", { problems: entry.checks.join(" ") }) : "",
  ];
  return readable(sentences.filter(Boolean).join(" "));
}

/** Two bars: the size before, and after. */
function proportion(entry) {
  const bar = (name, tokens) => [
    h("dt", {}, name),
    h("dd", {}, h("meter", { min: 0, max: Math.max(entry.tokens_before, 1), value: tokens }), ` ${t("{count} tokens", { count: count(tokens) })}`),
  ];
  return h("dl", { class: "proportion" }, bar(t("Before"), entry.tokens_before), bar(t("After"), entry.tokens_after));
}

function omitted(shown) {
  const more = shown.left - shown.rows.length;
  return more > 0 ? h("li", { class: "earlier" }, tn(more, "one earlier message", "{count} earlier messages")) : null;
}

function beginning(row) {
  return row.chars > row.text.length ? `${row.text}\n${t("… ({count} characters in total)", { count: count(row.chars) })}` : row.text;
}

function lost(entry) {
  if (!entry.lost?.length) return null;
  return h("p", { class: "lost" }, t("Identifiers missing from the summary: {names}", { names: readable(entry.lost.join(", ")) }));
}
