// A question about a tool call: exactly what would be done, why it is asked, and a button for each answer. Once it is answered it
// is one line that unfolds.
import { fill, h, readable } from "../elements.js";
import { exactly, when } from "../format.js";
import { icon } from "../icons.js";
import { t, th } from "../language.js";
import { LongText } from "../long_text.js";
import { drawDiff } from "./tool_calls.js";

const SCOPES = { once: t("Approve this time"), session: t("For this session"), always: t("Always") };
const APPROVED = { once: t("Approved this time"), session: t("Approved for this session"), always: t("Approved always") };

/** The card of a question. `entry` is that of a transcript; `answer(entry, decision, scope)` resolves once the gateway has
 * recorded the answer, to false if it was refused. */
export class QuestionCard {
  constructor(entry, answer) {
    this.answer = answer;
    const name = `question-${entry.approval}`;
    this.choices = h("div", { class: "choices" });
    this.expires = h("p", { class: "small faint" });
    this.outcome = h("span", { class: "outcome" });
    this.summary = h("summary", {}, icon("tool"), h("h2", { id: name }, th("May {tool} do this?", { tool: h("b", {}, readable(entry.tool)) })),
      h("span", { class: "given" }, readable(entry.text)), this.outcome);
    this.details = h("details", { open: true }, this.summary, h("div", { class: "body" },
      h("pre", { class: "what", tabIndex: 0 }, entry.text),
      this.detail(entry),
      entry.why ? h("p", {}, readable(entry.why)) : null,
      entry.choices.length > 1 ? h("p", { class: "small faint" }, t("Approved for longer, it covers {calls}.", { calls: coverage(entry) })) : null,
      this.choices,
      this.expires));
    this.element = h("div", { class: "question", role: "group", "aria-labelledby": name }, this.details);
    this.update(entry);
  }

  update(entry) {
    const { activeElement } = document;
    const focused = this.choices.contains(activeElement) || (this.pressed && activeElement === document.body);
    this.entry = entry;
    this.element.dataset.state = entry.state;
    const open = entry.state === "open";
    fill(this.choices, open ? [...entry.choices.map((scope, at) => this.button(SCOPES[scope], "approve", scope, at ? "" : "primary")),
      this.button(t("Deny"), "deny", "once", "danger")] : []);
    fill(this.expires, open ? th("Expires {time}.", { time: h("time", { dateTime: entry.expires, title: exactly(entry.expires) }, when(entry.expires)) }) : []);
    fill(this.outcome, open ? [] : outcomeOf(entry));
    if (!open && this.wasOpen !== false) this.details.open = false;
    this.wasOpen = open;
    if (open) return;
    if (focused) this.summary.focus();
    this.pressed = false;
  }

  button(label, decision, scope, kind) {
    const click = async () => {
      this.pressed = true; // a button that is disabled loses the focus
      for (const each of this.choices.children) each.disabled = true;
      const taken = await this.answer(this.entry, decision, scope);
      if (taken) return;
      this.pressed = false;
      for (const each of this.choices.children) each.disabled = false;
    };
    return h("button", { type: "button", class: kind || null, on: { click } }, label);
  }

  detail({ detail }) {
    if (!detail) return null;
    const place = h("div", { class: "detail" });
    if (/^(--- |@@ )/.test(detail)) drawDiff(place, detail);
    else new LongText(place).show(detail);
    return place;
  }
}

/** Return a question as a sentence for screen readers. */
export function question(tool, what) {
  return t("A question is open: may {tool} do this? {what}", { tool: readable(tool), what: readable(what).slice(0, 200) });
}

function coverage({ tool, pattern = {} }) {
  if (pattern.argv?.length) return t("exactly the command {command}", { command: pattern.argv.map(quoted).join(" ") });
  if (pattern.host) return t("every address of {host} for {tool}", { host: quoted(pattern.host), tool: readable(tool) });
  if (pattern.path) return t("every change of {path} by {tool}", { path: quoted(pattern.path), tool: readable(tool) });
  return t("every call of {tool}", { tool: readable(tool) });
}

/** Return a word as it is, or in quotation marks and with escapes if it has anything but plain characters. */
function quoted(word) {
  if (/^[\w@%+=:,./-]+$/.test(word)) return word;
  return JSON.stringify(word).replace(/[^\x20-\x7e]/gu, (found) => (/[\p{L}\p{N}\p{P}\p{S}]/u.test(found) ? found : `\\u{${found.codePointAt(0).toString(16)}}`));
}

/** Return who answered how and when, as nodes and texts. */
function outcomeOf({ state, answer }) {
  if (state === "ended") return [t("The turn ended before an answer.")];
  if (!answer.by) return [t("Denied, because nobody answered in time.")];
  const decided = answer.decision === "deny" ? t("Denied") : APPROVED[answer.scope];
  const time = h("time", { dateTime: answer.at, title: exactly(answer.at) }, when(answer.at));
  const values = { decision: decided, person: readable(answer.by), channel: readable(answer.channel ?? ""), time };
  return answer.channel ? th("{decision} by {person} ({channel}), {time}.", values) : th("{decision} by {person}, {time}.", values);
}
