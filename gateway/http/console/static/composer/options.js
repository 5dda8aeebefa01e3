// How the model of a conversation is asked, and what happens to messages that arrive while it answers.
import { fill, h, readable } from "../elements.js";
import { icon } from "../icons.js";
import { t } from "../language.js";
import { Popup } from "./popup.js";

const QUEUE = [
  ["followup", t("One after the other"), t("each message is answered by its own turn")],
  ["collect", t("Together"), t("what arrives meanwhile is answered together")],
  ["steer", t("Join in"), t("messages join the running turn after a tool call")],
  ["interrupt", t("Interrupt"), t("a message stops the running turn")],
];

const LEVELS = {
  none: t("none"), off: t("off"), minimal: t("minimal"), low: t("low"), medium: t("medium"), high: t("high"), xhigh: t("very high"), max: t("max"), on: t("on"),
};

/** The name of a level of effort, for people. */
export function levelName(level) {
  return LEVELS[level] ?? readable(level);
}

export class Options {
  /** `picker` knows the model; `settings` are those of the conversation. */
  constructor(settings, picker, refocus) {
    this.settings = settings;
    this.picker = picker;
    this.popup = new Popup({ name: "options", label: t("Options of this conversation"), closed: refocus, opened: (panel) => this.show(panel) });
    this.draw();
  }

  /** Show on the button what differs from the default. */
  draw() {
    const { effort, temperature } = this.settings.values;
    const efforts = this.picker.model?.efforts ?? [];
    const level = efforts.includes(effort) ? levelName(effort) : "";
    fill(this.popup.button, icon("preferences"), level ? h("span", { class: "chosen" }, level) : null);
    const parts = [level && t("effort: {level}", { level }), temperature !== undefined && t("temperature: {value}", { value: temperature })].filter(Boolean);
    this.popup.button.title = [t("Options"), ...parts].join(", ");
    this.popup.button.setAttribute("aria-label", this.popup.button.title);
  }

  show(panel) {
    fill(panel, this.effort(), this.temperature(), this.queue());
    return panel.querySelector("input:checked, input:not(:disabled)");
  }

  effort() {
    const efforts = this.picker.model?.efforts ?? [];
    const chosen = efforts.includes(this.settings.values.effort) ? this.settings.values.effort : null;
    if (!efforts.length) return h("p", { class: "small faint" }, t("This model has no levels of effort, or they are not known."));
    const choices = [null, ...efforts].map((level) => h("label", {},
      h("input", { type: "radio", name: "effort", class: "unseen", checked: level === chosen, on: { change: () => this.settings.set("effort", level) } }),
      h("span", {}, level === null ? t("Default") : levelName(level))));
    return h("fieldset", {}, h("legend", {}, t("Effort")), h("div", { class: "levels" }, choices));
  }

  temperature() {
    const { model } = this.picker;
    if (model && !model.temperature) return h("p", { class: "small faint" }, t("This model accepts no temperature."));
    const [low, high] = model?.temperature ?? [0, 2];
    const value = this.settings.values.temperature;
    const shown = h("output", { for: "temperature-range" }, value === undefined ? t("Default") : String(value));
    const range = h("input", { id: "temperature-range", type: "range", min: low, max: high, step: 0.1, "aria-label": t("Temperature"),
      on: { input: () => (shown.textContent = range.value), change: () => this.settings.set("temperature", Number(range.value)) } });
    range.value = value ?? (low + high) / 2;
    const reset = h("button", { type: "button", class: "worded", on: { click: () => {
      shown.textContent = t("Default");
      range.focus();
      this.settings.set("temperature", null);
    } } }, t("Default"));
    return h("fieldset", {}, h("legend", {}, t("Temperature"), shown), h("div", { class: "range" }, range, reset));
  }

  queue() {
    const chosen = this.settings.values.queue;
    const rows = QUEUE.map(([mode, name, meaning]) => h("label", { class: "mode" },
      h("input", { type: "radio", name: "queue", checked: mode === chosen, on: { change: () => this.settings.set("queue", mode) } }),
      h("span", {}, h("span", { class: "name" }, name), h("span", { class: "small faint" }, meaning))));
    return h("fieldset", {}, h("legend", {}, t("Messages that arrive while it answers")), rows);
  }
}
