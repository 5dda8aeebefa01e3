// A button of the composer that opens a panel above it.
import { h } from "../elements.js";

/** The panel closes by Escape, by a click elsewhere, and when the focus leaves it. `opened(panel)` fills it and returns the
 * element to focus; `closed()` gets the focus back after Escape. */
export class Popup {
  constructor({ name, label, opened, closed }) {
    this.opened = opened;
    this.closed = closed;
    this.panel = h("div", { id: name, class: `popup ${name}`, role: "dialog", "aria-label": label, hidden: true,
      tabIndex: -1, // a click on its texts leaves the focus in it
      on: { keydown: (event) => this.onKeydown(event) } });
    this.button = h("button", { class: `quiet ${name}-button`, type: "button", "aria-haspopup": "dialog", "aria-expanded": "false",
      "aria-controls": name, on: { click: () => (this.isOpen ? this.close() : this.open()) } });
    this.panel.addEventListener("focusout", ({ relatedTarget }) => relatedTarget && !this.holds(relatedTarget) && this.hide());
    this.outside = ({ target }) => !this.holds(target) && this.hide();
  }

  get isOpen() {
    return !this.panel.hidden;
  }

  holds(node) {
    return this.panel.contains(node) || this.button.contains(node);
  }

  open() {
    this.panel.hidden = false;
    this.button.setAttribute("aria-expanded", "true");
    document.addEventListener("pointerdown", this.outside);
    this.opened(this.panel)?.focus();
  }

  hide() {
    this.panel.hidden = true;
    this.button.setAttribute("aria-expanded", "false");
    document.removeEventListener("pointerdown", this.outside);
  }

  /** Close the panel and put the focus back. */
  close() {
    this.hide();
    this.closed();
  }

  onKeydown(event) {
    if (event.key !== "Escape" || event.isComposing) return;
    event.preventDefault(); // it does not stop the answer
    this.close();
  }
}
