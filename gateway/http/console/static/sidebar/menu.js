// A menu: a list of actions in the top layer, beside the button that opened it.
import { h } from "../elements.js";
import { icon } from "../icons.js";

const MARGIN = 8; // pixels to the edges of the window

/** Open a menu. An item is `{label, icon, act}`, or `{label, icon, href, download}` for a link, with `danger` if it destroys
 * something; null draws a line. The focus returns to `anchor`, a button. */
export function openMenu(anchor, label, items) {
  const close = () => menu.isConnected && menu.hidePopover();
  const elements = items.map((item) => (item ? itemOf(item, close) : h("li", { role: "separator" })));
  const menu = h("ul", { class: "menu-list", role: "menu", "aria-label": label, popover: "auto" }, elements);
  const all = [...menu.querySelectorAll("[role=menuitem]")];
  menu.addEventListener("keydown", (event) => onKeydown(event, all, close));
  menu.addEventListener("toggle", ({ newState }) => {
    if (newState === "open") return;
    anchor.setAttribute("aria-expanded", "false");
    const inside = menu.contains(document.activeElement) || document.activeElement === document.body;
    menu.remove();
    if (inside) anchor.focus();
  });
  anchor.setAttribute("aria-expanded", "true");
  document.body.append(menu);
  menu.showPopover();
  place(menu, anchor);
  all[0].focus();
}

function itemOf({ label, icon: symbol, act, href, download, danger }, close) {
  const properties = { role: "menuitem", class: danger ? "danger" : null, tabIndex: -1 };
  const inside = [icon(symbol), h("span", {}, label)];
  const element = href ? h("a", { ...properties, href, download: download ?? "", on: { click: close } }, inside)
    : h("button", { ...properties, type: "button", on: { click: () => (close(), act()) } }, inside);
  return h("li", { role: "none" }, element);
}

function onKeydown(event, all, close) {
  const at = all.indexOf(document.activeElement);
  const next = { ArrowDown: (at + 1) % all.length, ArrowUp: (at + all.length - 1) % all.length, Home: 0, End: all.length - 1 }[event.key];
  if (next !== undefined) all[next].focus();
  else if (event.key === "Escape" || event.key === "Tab") close();
  else return;
  event.preventDefault();
  event.stopPropagation();
}

/** Put the menu below its button, or above it if there is no room. */
function place(menu, anchor) {
  const button = anchor.getBoundingClientRect();
  const { width, height } = menu.getBoundingClientRect();
  const below = button.bottom + height + MARGIN <= innerHeight;
  const left = Math.min(button.left, innerWidth - width - MARGIN);
  menu.style.left = `${Math.max(MARGIN, left)}px`;
  menu.style.top = `${Math.max(MARGIN, below ? button.bottom + 2 : button.top - height - 2)}px`;
}
