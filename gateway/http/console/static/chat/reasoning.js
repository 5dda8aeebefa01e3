// What a model thinks before it answers: folded; while it thinks, with its last line and the time so far.
import { fill, h, readable } from "../elements.js";
import { icon } from "../icons.js";
import { duration } from "../format.js";
import { t } from "../language.js";
import { Markdown } from "../answer/markdown.js";

const END = 400; // characters at the end of what is being thought in which its last line is looked for

export class Reasoning {
  constructor() {
    this.label = h("span", { class: "label" });
    this.last = h("span", { class: "last" });
    this.took = h("span", { class: "took" });
    this.inside = h("div", { class: "prose inside", tabIndex: 0, role: "group", "aria-label": t("Reasoning") });
    const summary = h("summary", {}, icon("think"), this.label, this.last, this.took);
    this.details = h("details", { on: { toggle: () => this.unfold() } }, summary, this.inside);
    this.element = h("div", { class: "reasoning", hidden: true }, this.details);
    this.markdown = new Markdown(this.inside);
  }

  /** Show an entry's reasoning. While more may follow, the time goes on. */
  update(entry) {
    this.entry = entry;
    this.element.hidden = !entry.reasoning;
    if (!entry.reasoning) return;
    const thinking = Boolean(entry.live && !entry.text);
    this.element.classList.toggle("thinking", thinking);
    clearInterval(this.timer);
    if (thinking) this.timer = setInterval(() => this.tick(), 1000);
    this.tick(thinking);
    this.unfold();
  }

  tick(thinking = true) {
    if (thinking && !this.element.isConnected && this.shown) return clearInterval(this.timer); // it was removed
    this.shown ||= this.element.isConnected;
    const { reasoning, reasoningSince, reasoningMillis } = this.entry;
    if (thinking) {
      fill(this.label, t("Thinking…"));
      fill(this.last, this.details.open ? "" : readable(lastLine(reasoning)));
      fill(this.took, duration(Date.now() - reasoningSince, 1000));
      return;
    }
    const time = duration(reasoningMillis, 1000); // empty below a second
    fill(this.label, time ? t("Thought for {time}", { time }) : t("Thought"));
    fill(this.last);
    fill(this.took);
  }

  unfold() {
    if (!this.details.open) return;
    const { scrollHeight, scrollTop, clientHeight } = this.inside;
    const atEnd = scrollHeight - scrollTop - clientHeight < 40;
    this.markdown.show(this.entry.reasoning, !this.entry.live);
    if (this.entry.live && atEnd) this.inside.scrollTop = this.inside.scrollHeight;
    fill(this.last);
  }
}

/** The last line of a text, without its marks of Markdown. */
function lastLine(text) {
  const lines = text.slice(-END).split("\n").map((line) => line.replace(/[*_`#>]/g, "").trim()).filter(Boolean);
  return lines.at(-1) ?? "";
}
