// The search of the sidebar: the titles that have the words.
import { fill, h, readable } from "../elements.js";
import { icon } from "../icons.js";
import { t } from "../language.js";

const TITLES = 100; // conversations whose titles match

export class Search {
  constructor(app, sidebar) {
    this.app = app;
    this.sidebar = sidebar;
    this.wanted = ""; // what is searched for
    this.input = h("input", { type: "search", placeholder: t("Search"), "aria-label": t("Search conversations"), autocomplete: "off",
      maxLength: 200, on: { input: () => this.onInput(), keydown: (event) => this.onKeydown(event) } });
    this.field = h("span", { class: "field" }, icon("search"), this.input);
    this.titles = h("ul", { "aria-label": t("Conversations with this title") });
    this.count = h("p", { class: "faint small", role: "status" });
    this.results = h("div", { class: "results", hidden: true, on: { keydown: (event) => this.onArrow(event) } },
      this.titles, this.count);
  }

  onInput() {
    const wanted = this.input.value.trim();
    if (wanted === this.wanted) return;
    this.wanted = wanted;
    this.sidebar.drawNow();
  }

  draw() {
    this.results.hidden = !this.wanted;
    if (!this.wanted) return;
    const needle = this.wanted.toLowerCase();
    const titled = this.sidebar.conversations.filter(({ name }) => name.toLowerCase().includes(needle)).slice(0, TITLES);
    fill(this.titles, titled.map((conversation) => this.titleRow(conversation, needle)));
    this.titles.hidden = !titled.length;
    this.count.textContent = titled.length ? "" : t("Nothing was found.");
  }

  titleRow({ name, shown, archived }, needle) {
    const text = readable(name);
    const at = text.toLowerCase().indexOf(needle);
    const marked = at < 0 ? [text] : [text.slice(0, at), h("mark", {}, text.slice(at, at + needle.length)), text.slice(at + needle.length)];
    return h("li", {}, h("a", { href: `#/chat/${encodeURIComponent(shown.session)}` }, h("span", { class: "name" }, marked),
      archived ? h("span", { class: "faint small" }, t("archived")) : null));
  }

  // --- keys ------------------------------------------------------------------------------------------------------------

  links() {
    return [...this.results.querySelectorAll("a, button:not([hidden])")].filter((each) => each.offsetParent);
  }

  onKeydown(event) {
    if (event.isComposing) return;
    if (event.key === "ArrowDown") {
      event.preventDefault();
      if (this.wanted) this.links()[0]?.focus();
      else this.sidebar.list.focusFrom(0, 1);
    } else if (event.key === "Enter") this.links()[0]?.click();
    else if (event.key === "Escape" && this.wanted) {
      event.preventDefault();
      event.stopPropagation();
      this.clear();
    }
  }

  onArrow(event) {
    const links = this.links();
    const at = links.indexOf(document.activeElement);
    if (event.key === "Escape") this.clear();
    else if (event.key === "ArrowDown") links[at + 1]?.focus();
    else if (event.key === "ArrowUp") (links[at - 1] ?? this.input).focus();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  clear() {
    this.input.value = "";
    this.input.focus();
    this.onInput();
  }
}
