// The model of a conversation: a button with its name, and a panel to search and choose one.
import { fill, h, readable } from "../elements.js";
import { icon } from "../icons.js";
import { t } from "../language.js";
import { listed, priceInWords, priceOf, windowOf } from "./models.js";
import { Popup } from "./popup.js";

const SHOWN = 100; // rows in the document; the search finds the others

export class ModelPicker {
  /** `settings` are those of the conversation; `refocus` gets the focus when the panel closes. */
  constructor(app, settings, refocus) {
    this.app = app;
    this.settings = settings;
    this.list = null;
    this.at = 0;
    this.rows = [];
    this.input = h("input", { type: "search", role: "combobox", placeholder: t("Search models"), "aria-label": t("Search models"),
      "aria-expanded": "true", "aria-controls": "models-list", "aria-autocomplete": "list", autocomplete: "off", spellcheck: false,
      on: { input: () => this.filter(), keydown: (event) => this.onKeydown(event) } });
    this.options = h("ul", { id: "models-list", class: "models-list", role: "listbox", "aria-label": t("Models") });
    this.note = h("p", { class: "note small faint", role: "status" });
    this.popup = new Popup({ name: "models", label: t("Model"), closed: refocus, opened: (panel) => this.show(panel) });
    fill(this.popup.panel, h("span", { class: "field" }, icon("search"), this.input),
      h("p", { class: "heads", "aria-hidden": "true" }, h("span", {}, t("Model")), h("span", {}, t("Window")), h("span", {}, t("Per million tokens"))),
      this.options, this.note);
    this.ready = listed(app).then((list) => this.take(list), () => {}); // offline: they are requested again
    this.draw();
  }

  take(list) {
    this.list = list;
    this.draw();
    if (this.popup.isOpen) this.filter();
  }

  /** The name of the model that answers, as far as it is known. */
  get name() {
    return this.settings.values.model ?? this.list?.default ?? this.app.socket.welcome?.model ?? "";
  }

  /** What is known about the model that answers; null if nothing is. */
  get model() {
    return this.list?.models.find(({ id }) => id === this.name) ?? null;
  }

  draw() {
    const name = readable(this.name);
    const short = name.slice(name.indexOf(":") + 1) || t("No model");
    fill(this.popup.button, h("span", { class: "chosen" }, short), icon("down"));
    this.popup.button.title = t("Model: {name}", { name: name || t("none") });
    this.popup.button.setAttribute("aria-label", this.popup.button.title);
  }

  show() {
    this.input.value = "";
    this.filter();
    listed(this.app).then((list) => this.take(list), (error) => (this.note.textContent = error.message));
    return this.input;
  }

  filter() {
    const words = this.input.value.trim().toLowerCase().split(/\s+/);
    const models = this.list?.models ?? [];
    const usual = models.find(({ id }) => id === this.list?.default);
    const all = [{ ...usual, id: null, label: t("Default"), of: this.list?.default }, ...models];
    const found = all.filter(({ id, label, of }) => words.every((word) => `${id ?? label} ${of ?? ""}`.toLowerCase().includes(word)));
    this.rows = found.slice(0, SHOWN);
    this.at = Math.max(0, this.input.value ? 0 : this.rows.findIndex(({ id }) => id === (this.settings.values.model ?? null)));
    const failures = (this.list?.failures ?? []).map(({ provider, reason }) => t("{provider} could not be asked: {reason}.", { provider, reason }));
    const more = found.length > SHOWN ? [t("Search to find more models.")] : found.length ? [] : [t("No such model.")];
    this.note.textContent = this.list ? [...more, ...failures].join(" ") : t("Loading…");
    this.drawRows();
  }

  drawRows() {
    fill(this.options, this.rows.map((model, index) => this.row(model, index)));
    this.mark();
  }

  row(model, index) {
    const chosen = model.id === (this.settings.values.model ?? null);
    const [provider, ...rest] = (model.id ?? "").split(":");
    const name = model.id === null ? [h("span", { class: "name" }, model.label), h("span", { class: "faint small" }, readable(model.of ?? ""))]
      : [h("span", { class: "name" }, readable(rest.join(":"))), h("span", { class: "faint small" }, readable(provider))];
    return h("li", { id: `model-${index}`, role: "option", "aria-selected": "false", "data-chosen": String(chosen), title: priceInWords(model),
      on: { pointerdown: (event) => event.preventDefault(), click: () => this.choose(index), mousemove: () => this.at !== index && this.move(index) } },
      h("span", { class: "tick" }, chosen ? icon("tick") : null), h("span", { class: "names" }, name, chosen ? h("span", { class: "unseen" }, t("current")) : null),
      h("span", { class: "figure" }, windowOf(model)), h("span", { class: "figure" }, priceOf(model)));
  }

  move(index) {
    this.at = index;
    this.mark();
  }

  mark() {
    [...this.options.children].forEach((row, index) => row.setAttribute("aria-selected", String(index === this.at)));
    const active = this.options.children[this.at];
    if (active) this.input.setAttribute("aria-activedescendant", active.id);
    else this.input.removeAttribute("aria-activedescendant");
    active?.scrollIntoView({ block: "nearest" });
  }

  onKeydown(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.isComposing || (!step && event.key !== "Enter")) return;
    event.preventDefault();
    if (!step) this.choose(this.at);
    else if (this.rows.length) this.move((this.at + step + this.rows.length) % this.rows.length);
  }

  async choose(index) {
    const model = this.rows[index];
    if (!model) return;
    this.popup.close();
    if (await this.settings.set("model", model.id)) this.app.announce(t("Model: {name}", { name: model.id ?? model.of ?? "" }));
  }
}
