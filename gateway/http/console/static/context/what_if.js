// What if: a past request sent again, to another model or with other pruning, and the answers side by side. Nothing is kept.

import { Markdown } from "../answer/markdown.js";
import { levelName } from "../composer/options.js";
import { listed, priceInWords } from "../composer/models.js";
import { button } from "../controls.js";
import { fill, h, readable } from "../elements.js";
import { count, duration, sentence } from "../format.js";
import { t, tn } from "../language.js";
import { money } from "../money.js";

/** The choices of pruning: the rules that the gateway is sent; null for the request as it was. */
const POLICIES = {
  same: { name: t("As it was"), rules: () => null },
  off: { name: t("Nothing shortened"), rules: () => ({ mode: "off" }) },
  always: { name: t("Shorten old tool results"), rules: (form) => shortening(form) },
};

function shortening(form) {
  const most = Number(form.most.value);
  const half = Math.floor(most / 2);
  return {
    mode: "always", soft_trim_ratio: 0, keep_last_assistants: Number(form.kept.value),
    soft_trim: { max_chars: most, head_chars: half, tail_chars: half }, hard_clear: { enabled: form.clears.checked }, hard_clear_ratio: 0, min_prunable_chars: 0,
  };
}

/** The comparison of one request. `address` is the path of what is asked, with its query. */
export class WhatIf {
  constructor(api, address) {
    this.api = api;
    this.address = address;
    this.running = new Set();
    this.ended = false;
    this.form = h("div", { class: "what-if-form" });
    this.answers = h("div", { class: "answers" });
    this.state = h("p", { class: "about", role: "status" }, t("Reading the log…"));
    this.element = h("section", { class: "what-if", "aria-labelledby": "what-if-heading" },
      h("h3", { id: "what-if-heading", tabIndex: -1 }, t("What if")),
      h("p", { class: "about" }, t("The same request, sent again with a change. Nothing of it becomes part of the conversation; leaving the page stops it.")),
      this.form, this.state, this.answers);
    this.ready = this.load();
  }

  /** Stop everything. */
  end() {
    this.ended = true;
    for (const stop of this.running) stop.abort();
  }

  async load() {
    try {
      const [past, { models }] = await Promise.all([this.api.get(this.address), listed({ api: this.api })]);
      if (this.ended) return;
      this.models = models;
      this.past = past;
      this.state.textContent = "";
      this.draw();
      const card = new Card(t("The answer then"), past.model);
      if (past.answer) card.finish(past.answer);
      else card.fail(t("This request was not answered."));
      this.answers.append(card.element);
    } catch (error) {
      this.state.textContent = sentence(error);
    }
  }

  draw() {
    const { model, pruning } = this.past;
    const ids = [...new Set([model, ...this.models.map(({ id }) => id)])];
    const option = (value, name, chosen) => h("option", { value, selected: chosen }, readable(name));
    this.model = h("select", { on: { change: () => this.chosen() } }, ids.map((id) => option(id, id, id === model)));
    this.effort = h("select", {});
    this.temperature = h("input", { type: "number", step: 0.1 });
    this.policy = h("select", { on: { change: () => this.chosen() } }, Object.entries(POLICIES).map(([id, { name }]) => option(id, name, id === "same")));
    this.most = h("input", { type: "number", min: 0, value: pruning.soft_trim.max_chars });
    this.kept = h("input", { type: "number", min: 0, value: pruning.keep_last_assistants });
    this.clears = h("input", { type: "checkbox" });
    const field = (name, control) => h("label", {}, h("span", {}, name), control);
    this.efforts = field(t("Effort"), this.effort);
    this.temperatures = field(t("Temperature"), this.temperature);
    this.rules = [field(t("Longest result, in characters"), this.most), field(t("Newest answers whose results stay"), this.kept), field(t("Clear instead of shorten"), this.clears)];
    fill(this.form, field(t("Model"), this.model), this.efforts, this.temperatures, field(t("Pruning"), this.policy), this.rules,
      button(t("Ask"), () => this.ask(), { class: "primary" }));
    this.chosen();
  }

  /** Show the fields that the chosen model and policy have. */
  chosen() {
    const known = this.models.find(({ id }) => id === this.model.value);
    const { efforts = [], temperature = null } = known ?? {};
    this.model.title = known ? priceInWords(known) : "";
    fill(this.effort, [["", t("As it was")], ...efforts.map((level) => [level, levelName(level)])].map(([value, name]) => h("option", { value }, name)));
    this.efforts.hidden = !efforts.length;
    this.temperatures.hidden = !temperature;
    if (temperature) Object.assign(this.temperature, { min: temperature[0], max: temperature[1], placeholder: t("As it was") });
    else this.temperature.value = "";
    for (const field of this.rules) field.hidden = this.policy.value !== "always";
  }

  get change() {
    const pruning = POLICIES[this.policy.value].rules(this);
    return {
      model: this.model.value,
      ...(this.effort.value ? { effort: this.effort.value } : {}),
      ...(this.temperature.value ? { temperature: Number(this.temperature.value) } : {}),
      ...(pruning ? { pruning } : {}),
    };
  }

  async ask() {
    const change = this.change;
    const stop = new AbortController();
    this.running.add(stop);
    const differs = [POLICIES[this.policy.value].name, change.effort && t("effort: {level}", { level: levelName(change.effort) }),
      change.temperature !== undefined && t("temperature: {value}", { value: change.temperature })].filter(Boolean);
    const card = new Card(t("What if"), change.model, differs.join(", "), () => (stop.abort(), card.element.remove()), () => stop.abort());
    this.answers.append(card.element);
    try {
      for await (const event of this.api.stream(this.address, change, stop.signal)) card.take(event);
    } catch (error) {
      card.fail(error.name === "AbortError" ? t("Stopped.") : sentence(error));
    } finally {
      this.running.delete(stop);
    }
  }
}

/** One answer: who was asked, what differs, the text, and what it took. */
class Card {
  constructor(title, model, differs = "", remove = null, stop = null) {
    this.text = h("div", { class: "text" });
    this.markdown = new Markdown(this.text);
    this.said = "";
    this.difference = h("p", { class: "about" }, differs);
    this.thought = h("p", { class: "about thought" });
    this.calls = h("ul", { class: "calls" });
    this.figures = h("p", { class: "figures", role: "status" }, stop ? t("Waiting for the answer…") : "");
    this.stop = stop && button(t("Stop"), stop);
    this.element = h("article", { class: "answer-card", "aria-label": `${title}: ${model}` },
      h("header", {}, h("h4", {}, readable(model)), this.stop, remove && button(t("Remove"), remove, { class: "worded" })),
      h("p", { class: "about" }, title), this.difference, this.thought, this.text, this.calls, this.figures);
  }

  take(event) {
    switch (event.type) {
      case "request":
        return this.differ(event);
      case "text":
        this.said += event.text;
        return this.markdown.show(this.said, false);
      case "reasoning":
        return void (this.thought.textContent = t("Thinking…"));
      case "answer":
        return this.finish(event);
      case "failed":
        return this.fail(event.message);
      default:
        return undefined;
    }
  }

  differ({ tokens, before, changed, changes, withheld }) {
    const saved = changes.reduce((sum, change) => sum + change.before - change.after, 0);
    const parts = [
      this.difference.textContent ? `${this.difference.textContent}.` : "",
      tokens === before ? t("{tokens} tokens, as before.", { tokens: count(tokens) }) : t("{tokens} tokens instead of {before}.", { tokens: count(tokens), before: count(before) }),
      changed ? tn(changed, "One message differs, by {saved} characters.", "{count} messages differ, by {saved} characters.", { saved: count(-saved) }) : "",
      ...withheld.map((each) => t("Not shown to the model: {file}.", { file: each })),
    ];
    this.difference.textContent = readable(parts.filter(Boolean).join(" "));
  }

  finish({ text, calls = [], usage, millis, cost, currency, stop }) {
    this.stop?.remove();
    this.thought.remove();
    this.markdown.show(text);
    fill(this.calls, calls.map((call) => h("li", {}, h("code", {}, readable(`${call.tool} ${call.arguments}`)))));
    const figures = [
      duration(millis, millis < 1000 ? 1 : 100),
      usage ? t("{input} tokens in ({cached} cached), {output} out", { input: count(usage.input), cached: count(usage.cached), output: count(usage.output) }) : "",
      cost === undefined || cost === null ? "" : money({ amount: cost, currency: currency ?? "USD" }),
      calls.length ? t("called, and not run") : "",
      stop === "length" ? t("The answer reached its maximum length.") : "",
    ];
    this.figures.textContent = figures.filter(Boolean).join(" · ");
  }

  fail(reason) {
    this.stop?.remove();
    this.thought.remove();
    this.figures.textContent = reason;
  }
}
