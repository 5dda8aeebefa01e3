// The palette (Ctrl+K): conversations, pages, commands, models and themes, found by typing. And the list of keys (?).
import { fill, h, readable } from "../elements.js";
import { icon } from "../icons.js";
import { t } from "../language.js";
import * as theme from "../theme.js";
import { listed, priceOf, windowOf } from "./models.js";

const SHOWN = 60; // rows in the document; typing finds the others
const THEMES = { system: [t("System theme"), "screen"], light: [t("Light theme"), "light"], dark: [t("Dark theme"), "dark"] };

/** Open the palette of the page. */
export async function openPalette(app) {
  if (document.querySelector("dialog[open]")) return;
  await app.styles("composer/palette.css");
  if (!document.querySelector("dialog[open]")) new Palette(app).open();
}

class Palette {
  constructor(app) {
    this.app = app;
    this.models = [];
    this.rows = [];
    this.at = 0;
    this.input = h("input", { type: "search", role: "combobox", placeholder: t("Search conversations, pages, commands, models"), "aria-label": t("Search"),
      "aria-expanded": "true", "aria-controls": "palette-list", "aria-autocomplete": "list", autocomplete: "off", spellcheck: false,
      on: { input: () => this.filter(), keydown: (event) => this.onKeydown(event) } });
    this.list = h("ul", { id: "palette-list", role: "listbox", "aria-label": t("Results") });
    this.none = h("p", { class: "faint small none", role: "status" });
    this.dialog = h("dialog", { class: "palette", "aria-label": t("Palette"),
      on: { close: () => this.dialog.remove(), click: (event) => event.target === this.dialog && this.dialog.close() } },
      h("div", { class: "inner" }, h("span", { class: "field" }, icon("search"), this.input), this.list, this.none));
  }

  open() {
    document.body.append(this.dialog);
    this.dialog.showModal(); // closing it gives the focus back
    this.input.focus();
    this.filter();
    listed(this.app).then(({ models }) => {
      this.models = models;
      if (this.dialog.open) this.filter();
    }, () => {});
  }

  /** Everything there is: `{group, label, detail, icon, run}`. */
  everything() {
    const { app } = this;
    const go = (hash) => () => app.go(hash);
    const key = encodeURIComponent(app.lastKey);
    const pages = [
      { label: t("New conversation"), icon: "plus", run: go("#/chat/~") },
      ...[...app.shell.places].map(([page, link]) => ({ label: link.textContent, icon: page, run: go(link.getAttribute("href")) })),
      { label: t("Keys"), detail: "?", icon: "more", run: () => openKeys(app) },
      ...theme.CHOICES.map((choice) => ({ label: THEMES[choice][0], icon: THEMES[choice][1], run: () => theme.choose(choice) })),
    ].map((row) => ({ group: t("Pages"), ...row }));
    const conversations = app.conversations.conversations.map(({ name, shown }) => ({ group: t("Conversations"), icon: "chat",
      label: readable(name), detail: shown.title ? shown.session : "", run: go(`#/chat/${encodeURIComponent(shown.session)}`) }));
    const write = (text) => () => {
      if (app.composer) return app.composer.write(text);
      localStorage.setItem(`exuvia.draft.${app.lastKey}`, text);
      app.go(`#/chat/${key}`);
    };
    const commands = (app.socket.welcome?.commands ?? []).map(({ name, usage, summary }) => ({ group: t("Commands"), icon: "tool", label: `/${name}`,
      detail: summary.replaceAll("`", ""), run: write(`/${name}${usage.includes(" ") ? " " : ""}`) }));
    const models = app.composer ? this.models.map((model) => ({ group: t("Models"), icon: "preferences", label: readable(model.id),
      detail: [windowOf(model), priceOf(model)].filter(Boolean).join(" · "), run: () => app.composer.settings.set("model", model.id) })) : [];
    return [...conversations, ...pages, ...commands, ...models];
  }

  filter() {
    const words = this.input.value.trim().toLowerCase().split(/\s+/);
    const fits = ({ label, detail = "", group }) => words.every((word) => `${label} ${detail} ${group}`.toLowerCase().includes(word));
    const begins = ({ label }) => Number(!label.toLowerCase().replace("/", "").startsWith(words[0]));
    const found = this.everything().filter(fits);
    const best = this.input.value.trim() ? found.sort((one, other) => begins(one) - begins(other)) : this.beginnings(found);
    this.rows = best.slice(0, SHOWN);
    this.at = 0;
    this.none.textContent = this.rows.length ? "" : t("Nothing matches.");
    let group = "";
    fill(this.list, this.rows.map((row, index) => {
      const heading = row.group === group ? "" : row.group;
      ({ group } = row);
      return h("li", { id: `palette-${index}`, role: "option", "aria-selected": "false",
        on: { pointerdown: (event) => event.preventDefault(), click: () => this.run(index), mousemove: () => this.at !== index && this.move(index) } },
        icon(row.icon), h("span", { class: "label" }, row.label), row.detail ? h("span", { class: "detail faint" }, row.detail) : null,
        h("span", { class: "group faint" }, heading));
    }));
    this.mark();
  }

  /** Without a search: the newest conversations, and everything else that is not a command or a model. */
  beginnings(found) {
    const conversations = found.filter(({ group }) => group === t("Conversations")).slice(0, 6);
    return [...conversations, ...found.filter(({ group }) => group === t("Pages")), ...found.filter(({ group }) => group === t("Commands"))];
  }

  move(index) {
    this.at = index;
    this.mark();
  }

  mark() {
    [...this.list.children].forEach((row, index) => row.setAttribute("aria-selected", String(index === this.at)));
    const active = this.list.children[this.at];
    if (active) this.input.setAttribute("aria-activedescendant", active.id);
    else this.input.removeAttribute("aria-activedescendant");
    active?.scrollIntoView({ block: "nearest" });
  }

  onKeydown(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.isComposing || (!step && event.key !== "Enter" && event.key !== "Escape")) return;
    event.preventDefault(); // Escape would only empty the search
    if (event.key === "Escape") this.dialog.close();
    else if (!step) this.run(this.at);
    else if (this.rows.length) this.move((this.at + step + this.rows.length) % this.rows.length);
  }

  run(index) {
    const row = this.rows[index];
    if (!row) return;
    this.dialog.close();
    row.run();
  }
}

const KEYS = [
  ["Ctrl+K", t("Search conversations, pages, commands and models")],
  ["?", t("List the keys")],
  ["Enter", t("Send the message")],
  ["Shift+Enter", t("Begin a new line")],
  ["/", t("Commands and prompt templates")],
  ["@", t("Notes and files")],
  ["Tab", t("Complete; or go to the next variable of a template")],
  ["↑ ↓", t("Choose in a list")],
  ["Esc", t("Close a list; or stop the answer")],
];

/** Show the keys. */
export async function openKeys(app) {
  await app.styles("composer/palette.css");
  if (document.querySelector("dialog[open]")) return;
  const apple = /Mac|iPhone|iPad/.test(navigator.platform);
  const close = h("button", { type: "button", class: "primary", on: { click: () => dialog.close() } }, t("Close"));
  const dialog = h("dialog", { class: "keys", "aria-labelledby": "keys-title", on: { close: () => dialog.remove() } },
    h("h2", { id: "keys-title" }, t("Keys")),
    h("dl", {}, KEYS.map(([keys, meaning]) => h("div", {},
      h("dt", {}, keys.split(/(?<=.)\+/).map((key) => h("kbd", {}, apple && key === "Ctrl" ? "⌘" : key))), h("dd", {}, meaning)))),
    h("div", { class: "choices" }, close));
  document.body.append(dialog);
  dialog.showModal();
  close.focus();
}
