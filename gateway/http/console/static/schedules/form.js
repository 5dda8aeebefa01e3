// The form that sets a schedule. What the time means is decided by the gateway; a text that it does not understand is given to
// the model, whose proposal counts once it is confirmed.

import { button } from "../controls.js";
import { fill, h, readable } from "../elements.js";
import { sentence } from "../format.js";
import { t } from "../language.js";

const EXAMPLES = ["10m", "18:00", "tomorrow 9:00", "every 2h", "every weekday 9:00", "0 9 * * 1-5"];

export class ScheduleForm {
  /** `added` is called with what was set. */
  constructor(api, added) {
    this.api = api;
    this.added = added;
    this.time = h("input", { id: "schedule-time", required: true, autocomplete: "off", spellcheck: false, placeholder: "every weekday 9:00", maxLength: 200, "aria-describedby": "schedule-hint" });
    this.text = h("textarea", { id: "schedule-text", rows: 2, required: true, maxLength: 16000 });
    this.kind = h("select", { id: "schedule-kind" }, h("option", { value: "task" }, t("Task")), h("option", { value: "reminder" }, t("Reminder")));
    this.zone = h("input", { id: "schedule-zone", autocomplete: "off", spellcheck: false, placeholder: "Europe/Berlin" });
    this.missed = h("select", { id: "schedule-missed" },
      h("option", { value: "once" }, t("the newest comes late")), h("option", { value: "skip" }, t("they are skipped")), h("option", { value: "all" }, t("the newest 20 come late")));
    this.within = h("input", { id: "schedule-within", autocomplete: "off", placeholder: "1h" });
    this.session = h("input", { id: "schedule-session", autocomplete: "off", spellcheck: false, placeholder: "main" });
    this.to = h("input", { id: "schedule-to", autocomplete: "off", spellcheck: false, placeholder: "telegram:1234" });
    this.problem = h("p", { class: "fault", role: "alert" });
    const field = (label, input) => h("div", { class: "schedule-field" }, h("label", { for: input.id }, label), input);
    this.element = h(
      "form",
      { class: "schedule-form card", "aria-label": t("New schedule"), on: { submit: (event) => (event.preventDefault(), this.set()), keydown: (event) => this.onKeydown(event) } },
      h("div", { class: "row" }, field(t("When"), this.time), field(t("Kind"), this.kind)),
      h("p", { class: "hint", id: "schedule-hint" }, t("For example:"), " ",
        EXAMPLES.map((example) => button(example, () => this.take(example), { class: "example" }))),
      field(t("Text"), this.text),
      h("details", { class: "options" }, h("summary", {}, t("Options")),
        h("div", { class: "row" }, field(t("Time zone"), this.zone), field(t("Conversation"), this.session), field(t("Deliver to a chat"), this.to)),
        h("div", { class: "row" }, field(t("Missed ones"), this.missed), field(t("At most so late"), this.within))),
      this.problem,
      h("div", { class: "schedule-actions" }, (this.submit = h("button", { type: "submit", class: "primary" }, t("Schedule")))),
    );
  }

  take(example) {
    this.time.value = example;
    (this.text.value ? this.time : this.text).focus();
  }

  onKeydown(event) {
    if (event.isComposing || event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    this.element.requestSubmit();
  }

  async set() {
    this.submit.disabled = true;
    fill(this.problem);
    const value = (input) => input.value.trim();
    try {
      const made = await this.api.post("/api/schedules", {
        text: `${value(this.time)} ${value(this.text)}`,
        reminder: this.kind.value === "reminder",
        zone: value(this.zone),
        missed: this.missed.value,
        within: value(this.within),
        session: value(this.session),
        to: value(this.to),
      });
      this.time.value = this.text.value = "";
      await this.added(made);
    } catch (error) {
      fill(this.problem, readable(sentence(error)));
      this.time.focus();
    } finally {
      this.submit.disabled = false;
    }
  }
}
