// Texts that are too long to lay out at once: the beginning is shown, and more on demand.
import { h } from "./elements.js";
import { tn } from "./language.js";

const LONG = 48_000; // characters
const FIRST = 8_000;
const STEP = 100_000;

/** Return whether a text is too long to lay out at once. */
export function isLong(text) {
  return text.length > LONG;
}

export class LongText {
  constructor(element) {
    this.text = "";
    this.end = 0;
    this.place = h("pre", { class: "long", tabIndex: 0 });
    this.more = h("button", { class: "worded", type: "button", on: { click: () => this.reveal(STEP) } });
    element.append(this.place, this.more);
  }

  show(text) {
    this.text = text;
    if (this.end < FIRST) this.reveal(FIRST);
    else this.label();
  }

  /** Show more characters, in an element of their own: the earlier ones are not laid out again. */
  reveal(characters) {
    let end = Math.min(this.end + characters, this.text.length);
    if (/[\ud800-\udbff]/.test(this.text[end - 1]) && end < this.text.length) end--;
    this.place.append(h("span", {}, this.text.slice(this.end, end)));
    this.end = end;
    this.label();
  }

  label() {
    const left = this.text.length - this.end;
    this.more.hidden = !left;
    this.more.textContent = tn(left, "Show more (one character left)", "Show more ({count} characters left)");
  }
}
