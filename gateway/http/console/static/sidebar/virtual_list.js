// A long list of which only the visible part is in the document. All items have the same height, that of the first.
import { h } from "../elements.js";

const AROUND = 12; // items that are drawn above and below the visible ones

export class VirtualList {
  /** `make(item)` returns `{element, update(item)}` for a new item, an `li`; an item is `{key, …}`. Items that can have the
   * focus have `link: true`, and an element `[data-focus]`. */
  constructor(make) {
    this.make = make;
    this.items = [];
    this.drawn = new Map();
    this.height = 36;
    this.active = ""; // the key of the item that Tab reaches
    this.list = h("ul", {});
    this.element = h("div", { class: "scroller", tabIndex: -1, on: { scroll: () => this.draw(), keydown: (event) => this.onKeydown(event),
      focusin: (event) => this.onFocus(event) } }, this.list);
    new ResizeObserver(() => this.draw()).observe(this.element);
  }

  /** Show these items. `active` is the key of the item that Tab reaches, unless the focus is in the list. */
  show(items, active) {
    this.items = items;
    const focused = this.element.contains(document.activeElement) && this.indexOf(this.active) >= 0;
    if (!focused) this.active = this.indexOf(active) >= 0 ? active : items.find((item) => item.link)?.key ?? "";
    this.draw();
  }

  indexOf(key) {
    return this.items.findIndex((item) => item.key === key);
  }

  draw() {
    const { scrollTop, clientHeight } = this.element;
    const first = Math.max(0, Math.min(Math.floor(scrollTop / this.height), this.items.length - 1) - AROUND);
    const end = Math.min(this.items.length, Math.ceil((scrollTop + clientHeight) / this.height) + AROUND);
    this.list.style.paddingTop = `${first * this.height}px`;
    this.list.style.paddingBottom = `${Math.max(0, this.items.length - end) * this.height}px`;
    const wanted = this.items.slice(first, end);
    this.remove(new Set(wanted.map((item) => item.key)));
    let next = this.list.firstChild;
    wanted.forEach((item) => {
      const element = this.elementOf(item);
      if (element === next) next = next.nextSibling;
      else this.list.insertBefore(element, next);
    });
    this.measure();
  }

  /** Remove what is no longer visible. The focus stays in the list. */
  remove(wanted) {
    for (const [key, drawn] of this.drawn) {
      if (wanted.has(key)) continue;
      if (drawn.element.contains(document.activeElement)) this.element.focus({ preventScroll: true });
      drawn.element.remove();
      this.drawn.delete(key);
    }
  }

  elementOf(item) {
    let drawn = this.drawn.get(item.key);
    if (!drawn) this.drawn.set(item.key, (drawn = this.make(item)));
    drawn.update(item);
    for (const each of drawn.element.querySelectorAll("[data-focus], button")) each.tabIndex = item.key === this.active ? 0 : -1;
    return drawn.element;
  }

  /** Draw again if the items turn out to have another height, as on a touch screen or with larger letters. */
  measure() {
    const height = this.list.firstElementChild?.offsetHeight;
    if (!height || height === this.height) return;
    this.height = height;
    this.draw();
  }

  onFocus({ target }) {
    const found = [...this.drawn].find(([, { element }]) => element.contains(target));
    if (!found || found[0] === this.active) return;
    this.active = found[0];
    this.draw();
  }

  onKeydown(event) {
    if (event.altKey || event.ctrlKey || event.metaKey || event.target.matches("input")) return;
    const at = this.indexOf(this.active);
    const page = Math.max(1, Math.floor(this.element.clientHeight / this.height) - 1);
    const steps = { ArrowDown: [at + 1, 1], ArrowUp: [at - 1, -1], Home: [0, 1], End: [this.items.length - 1, -1],
      PageDown: [Math.min(at + page, this.items.length - 1), -1], PageUp: [Math.max(at - page, 0), 1] };
    if (!steps[event.key]) return;
    event.preventDefault();
    this.focusFrom(...steps[event.key]);
  }

  /** Focus the first item with a link at or after an index, in the direction `step`. */
  focusFrom(index, step) {
    while (this.items[index] && !this.items[index].link) index += step;
    const item = this.items[index];
    if (!item) return false;
    this.active = item.key;
    this.scrollTo(index);
    this.drawn.get(item.key).element.querySelector("[data-focus]").focus({ preventScroll: true });
    return true;
  }

  /** Scroll no farther than is needed to show the item at an index. */
  scrollTo(index) {
    const { scrollTop, clientHeight } = this.element;
    const top = index * this.height;
    if (top < scrollTop + this.height) this.element.scrollTop = top - this.height; // the heading above it, too
    else if (top + this.height > scrollTop + clientHeight) this.element.scrollTop = top + this.height - clientHeight;
    this.draw();
  }
}
