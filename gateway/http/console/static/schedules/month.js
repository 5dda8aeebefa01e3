// The next occurrences as a month. On a narrow page only days with occurrences are shown, one below the other.

import { button } from "../controls.js";
import { fill, h, readable } from "../elements.js";
import { sentence } from "../format.js";
import { locale, t } from "../language.js";

const [WEEK, WEEKS] = [7, 6];
const DAY = 86_400_000;
const SHOWN = 3; // occurrences of a day that are shown; the rest is counted
const LABEL = 60; // characters of a text

const name = (options) => new Intl.DateTimeFormat(locale, { timeZone: "UTC", ...options });
const [monthName, dayName, dayLabel] = [name({ month: "long", year: "numeric" }), name({ weekday: "short" }), name({ weekday: "long", day: "numeric", month: "long" })];

/** The first day of the week where the language is spoken, 0 for Sunday. */
const FIRST = (() => {
  const known = new Intl.Locale(locale);
  return ((known.getWeekInfo?.() ?? known.weekInfo)?.firstDay ?? 1) % WEEK;
})();

export class Month {
  /** `open` is called with the id of a schedule that is chosen. */
  constructor(api, open) {
    this.api = api;
    this.open = open;
    this.month = null; // the first of the month, as a UTC date
    this.zone = "";
    this.texts = new Map();
    this.title = h("h2", { "aria-live": "polite" });
    this.table = h("table", { class: "month" });
    this.problem = h("p", { class: "fault", role: "alert" });
    this.element = h(
      "section",
      { class: "calendar", "aria-label": t("Calendar") },
      h("header", {}, this.title,
        button("‹", () => this.turn(-1), { "aria-label": t("Previous month"), class: "turn" }),
        button(t("Today"), () => this.turn(0), { class: "turn" }),
        button("›", () => this.turn(1), { "aria-label": t("Next month"), class: "turn" })),
      this.problem,
      this.table,
    );
  }

  turn(by) {
    if (this.today) this.month = by ? Date.UTC(year(this.month), month(this.month) + by) : firstOf(this.today);
    return this.load(this.texts);
  }

  /** Load the days; `texts` are the schedules by id. An answer for another month is dropped. */
  async load(texts) {
    this.texts = texts;
    const asked = (this.asked = this.month);
    try {
      const begin = asked === null ? null : beginOf(asked);
      const query = begin === null ? "" : `&from=${iso(begin)}`;
      const found = await this.api.get(`/api/schedules/calendar?days=${WEEK * WEEKS}${query}`);
      if (this.asked !== asked) return;
      this.zone = found.zone;
      this.today = Date.parse(found.today);
      if (asked === null) {
        this.month = firstOf(this.today);
        if (iso(beginOf(this.month)) !== found.first) return this.load(texts);
      }
      fill(this.problem);
      this.show(new Map(found.days.map(({ day, due }) => [day, due])));
    } catch (error) {
      fill(this.problem, sentence(error));
    }
  }

  show(days) {
    this.title.textContent = monthName.format(this.month);
    const begin = beginOf(this.month);
    const weeks = Array.from({ length: WEEKS }, (_, week) => Array.from({ length: WEEK }, (_, day) => begin + (week * WEEK + day) * DAY));
    const used = weeks.filter((week) => week.some((day) => month(day) === month(this.month)));
    fill(
      this.table,
      h("caption", { class: "unseen" }, this.title.textContent),
      h("thead", {}, h("tr", {}, weeks[0].map((day) => h("th", { scope: "col" }, dayName.format(day))))),
      h("tbody", {}, used.map((week) => h("tr", {}, week.map((day) => this.cell(day, days.get(iso(day)) ?? []))))),
    );
  }

  cell(day, due) {
    const outside = month(day) !== month(this.month);
    const kinds = ["day", outside ? "outside" : "", due.length ? "" : "free", day === this.today ? "today" : ""].filter(Boolean).join(" ");
    const rest = due.length - SHOWN;
    const list = h("ul", { class: "due-list" }, due.slice(0, SHOWN).map((each) => h("li", {}, this.chip(each))));
    const more = () => {
      fill(list, due.map((each) => h("li", {}, this.chip(each))));
      list.children[SHOWN].querySelector("button").focus();
    };
    if (rest > 0) list.append(h("li", {}, button(t("{count} more", { count: rest }), more, { class: "rest" })));
    return h("td", { class: kinds, "aria-current": day === this.today ? "date" : null },
      h("span", { class: "number", "aria-hidden": "true" }, new Date(day).getUTCDate()), h("span", { class: "long" }, dayLabel.format(day)),
      due.length ? list : null);
  }

  chip({ id, time, more }) {
    const entry = this.texts.get(id);
    const text = readable(entry?.text ?? id).slice(0, LABEL);
    return h("button", { type: "button", class: `chip ${entry?.reminder ? "reminder" : "task"}`, title: text, on: { click: () => this.open(id) } },
      h("span", { class: "time" }, more ? `${time}…` : time), " ", h("span", { class: "what" }, text));
  }
}

const year = (day) => new Date(day).getUTCFullYear();
const month = (day) => new Date(day).getUTCMonth();
const firstOf = (day) => Date.UTC(year(day), month(day));
const iso = (day) => new Date(day).toISOString().slice(0, 10);

/** The first day of the week in which a month begins. */
const beginOf = (first) => first - ((new Date(first).getUTCDay() - FIRST + WEEK) % WEEK) * DAY;
