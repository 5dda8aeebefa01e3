// The search of the sidebar: titles at once, then the texts of all messages and answers.
import { fill, h, readable } from "../elements.js";
import { ago, sentence } from "../format.js";
import { icon } from "../icons.js";
import { t } from "../language.js";

const PAUSE = 150; // milliseconds without a key before the gateway is asked
const AGAIN = 500; // milliseconds until it is asked again while it indexes
const TITLES = 6; // conversations whose titles match
const HITS = 20;

export class Search {
  constructor(app, sidebar) {
    this.app = app;
    this.sidebar = sidebar;
    this.wanted = ""; // what is searched for
    this.hits = [];
    this.more = false;
    this.state = ""; // "", "searching", or a sentence about a failure
    this.asked = null; // aborts the running request
    this.input = h("input", { type: "search", placeholder: t("Search"), "aria-label": t("Search conversations"), autocomplete: "off",
      maxLength: 200, on: { input: () => this.onInput(), keydown: (event) => this.onKeydown(event) } });
    this.field = h("span", { class: "field" }, icon("search"), this.input);
    this.titles = h("ul", { "aria-label": t("Conversations with this title") });
    this.texts = h("ul", { "aria-label": t("Messages") });
    this.count = h("p", { class: "faint small", role: "status" });
    this.further = h("button", { type: "button", class: "worded", hidden: true, on: { click: () => this.ask(this.hits.length) } },
      t("More results"));
    this.results = h("div", { class: "results", hidden: true, on: { keydown: (event) => this.onArrow(event) } },
      this.titles, this.count, this.texts, this.further);
  }

  onInput() {
    const wanted = this.input.value.trim();
    if (wanted === this.wanted) return;
    this.wanted = wanted;
    this.asked?.abort();
    clearTimeout(this.timer);
    this.hits = [];
    this.more = false;
    this.state = wanted ? "searching" : "";
    if (wanted) this.timer = setTimeout(() => this.ask(0), PAUSE);
    this.sidebar.drawNow();
  }

  /** Ask the gateway for hits from `offset` on. */
  async ask(offset) {
    const asked = (this.asked = new AbortController());
    try {
      const query = new URLSearchParams({ q: this.wanted, limit: HITS, offset });
      const { hits, more, pending = 0 } = await this.app.api.get(`/api/conversations/search?${query}`, { signal: asked.signal });
      if (asked.signal.aborted) return;
      const focused = document.activeElement === this.further;
      Object.assign(this, { hits: [...this.hits.slice(0, offset), ...hits], more, state: pending ? "searching" : "" });
      this.draw();
      if (pending && !offset) this.timer = setTimeout(() => this.ask(0), AGAIN); // the first search builds an index
      if (focused) this.texts.children[offset]?.firstChild.focus();
    } catch (error) {
      if (asked.signal.aborted) return;
      this.state = sentence(error);
      this.draw();
    }
  }

  draw() {
    this.results.hidden = !this.wanted;
    if (!this.wanted) return;
    const needle = this.wanted.toLowerCase();
    const focused = this.links().find((each) => each === document.activeElement)?.getAttribute("href");
    const titled = this.sidebar.conversations.filter(({ name, shown }) => [name, shown.session].some((text) => text.toLowerCase().includes(needle))).slice(0, TITLES);
    fill(this.titles, titled.map((conversation) => this.titleRow(conversation, needle)));
    this.titles.hidden = !titled.length;
    fill(this.texts, this.hits.map((hit) => this.hitRow(hit)));
    this.texts.hidden = !this.hits.length;
    this.further.hidden = !this.more;
    this.count.textContent = this.state === "searching" ? t("Searching…") : this.state || this.found(titled);
    if (focused) (this.links().find((each) => each.getAttribute("href") === focused) ?? this.input).focus({ preventScroll: true });
  }

  found(titled) {
    if (this.hits.length) return t("In messages");
    return titled.length ? "" : t("Nothing was found.");
  }

  titleRow({ name, shown, archived }, needle) {
    const text = readable(name);
    const at = text.toLowerCase().indexOf(needle);
    const marked = at < 0 ? [text] : [text.slice(0, at), h("mark", {}, text.slice(at, at + needle.length)), text.slice(at + needle.length)];
    return h("li", {}, h("a", { href: `#/chat/${encodeURIComponent(shown.session)}` }, h("span", { class: "name" }, marked),
      archived ? h("span", { class: "faint small" }, t("archived")) : null));
  }

  hitRow({ session, session_id, seq, at, role, title, snippet, archived }) {
    const name = this.sidebar.conversationOf(session)?.name || title || session;
    const who = role === "person" ? t("You") : t("Assistant");
    const text = snippet.map(([piece, matched]) => (matched ? h("mark", {}, readable(piece)) : readable(piece)));
    return h("li", {}, h("a", { class: "hit", href: `#/chat/${[session, session_id, seq, this.wanted].map(encodeURIComponent).join("/")}` },
      h("span", { class: "head" }, h("span", { class: "name" }, readable(name)), h("time", { class: "faint", dateTime: at }, ago(at))),
      h("span", { class: "snippet" }, h("span", { class: "faint" }, archived ? `${who} · ${t("archived")}: ` : `${who}: `), text)));
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
