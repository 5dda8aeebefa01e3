// A block of code: its language, a button that copies it, and its text, which is highlighted as it comes.
import { h } from "../elements.js";
import { t } from "../language.js";
import { copyButton } from "./copying.js";

export class CodeBlock {
  constructor(language) {
    this.language = language;
    this.text = "";
    this.place = h("code", { "data-language": language || null });
    const copy = copyButton(t("Copy"), () => this.text);
    this.head = h("div", { class: "code-head" }, h("span", {}, language || t("text")), copy);
    this.body = h("pre", { tabIndex: 0 }, this.place);
    this.element = h("div", { class: "code" }, this.head, this.body);
  }

  /** Show a text, which may still grow. */
  show(text) {
    this.text = text;
    if (this.highlighter) this.highlighter.show(text);
    else this.place.textContent = text;
    if (this.language) this.highlight();
  }

  /** The text is complete. */
  finish() {
    if (this.finished) return;
    this.finished = true;
    this.highlighter?.show(this.text, true);
    if (this.language.toLowerCase() === "mermaid") this.draw();
  }

  async draw() {
    const { Diagram } = await import("./diagrams.js");
    new Diagram(this);
  }

  async highlight() {
    if (this.loading) return;
    this.loading = true;
    const { Highlighter } = await import("./code.js");
    this.highlighter = new Highlighter(this.place);
    this.highlighter.show(this.text, this.finished);
  }
}
