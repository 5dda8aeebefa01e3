// The page `#/schedules`: what the gateway puts into conversations at set times, as a list and as a month; a form adds to it.
// The gateway computes all times; they are shown in the person's time zone.

import { button, guarded } from "../controls.js";
import { fill, h, readable } from "../elements.js";
import { sentence } from "../format.js";
import { locale, t, tn } from "../language.js";
import { money } from "../money.js";
import { ScheduleForm } from "./form.js";
import { Month } from "./month.js";

/** Milliseconds after a due time at which the list is loaded again, and the longest pause before that. */
const [SETTLED, LONGEST] = [2000, 3_600_000];

const POLICIES = { once: t("the newest comes late"), skip: t("they are skipped"), all: t("the newest 20 come late") };

/** Show the schedules in an element; returns a function that removes them. */
export async function mount(element, app) {
  await app.styles("schedules/schedules.css");
  const page = new SchedulesPage(element, app);
  await page.load();
  return () => page.end();
}

class SchedulesPage {
  constructor(element, app) {
    this.app = app;
    this.api = app.api;
    this.ended = false;
    this.zone = undefined;
    this.status = h("p", { class: "status", role: "status" });
    this.list = h("ul", { class: "schedules" });
    this.heartbeat = h("div", { class: "heartbeat", hidden: true });
    this.form = new ScheduleForm(this.api, (made) => this.added(made));
    this.month = new Month(this.api, (id) => this.open(id));
    fill(
      element,
      h(
        "div",
        { class: "schedules-page" },
        this.form.element,
        this.status,
        h("div", { class: "parts" },
          h("section", { class: "listed", "aria-label": t("Schedules") }, this.heartbeat, this.list),
          this.month.element),
      ),
    );
  }

  end() {
    this.ended = true;
    clearTimeout(this.timer);
  }

  /** Load the list and the month. */
  async load() {
    clearTimeout(this.timer);
    try {
      const [entries, heartbeat] = await Promise.all([this.api.get("/api/schedules"), this.api.get("/api/schedules/heartbeat")]);
      if (this.ended) return;
      this.texts = new Map(entries.map((entry) => [entry.id, entry]));
      await this.month.load(this.texts);
      if (this.ended) return;
      this.zone = this.month.zone || undefined;
      this.show(entries);
      this.showHeartbeat(heartbeat);
      this.loadAfter(entries);
    } catch (error) {
      this.status.textContent = sentence(error);
    }
  }

  /** Load again once the next of them was due. */
  loadAfter(entries) {
    const next = entries.find((entry) => entry.next)?.next;
    const pause = next ? Math.max(0, new Date(next) - Date.now()) + SETTLED : LONGEST;
    this.timer = setTimeout(() => this.load(), Math.min(LONGEST, pause));
  }

  show(entries) {
    const focused = document.activeElement?.dataset?.does;
    this.status.textContent = entries.length
      ? tn(entries.length, "one schedule", "{count} schedules")
      : t("Nothing is scheduled. A reminder is a note to you; a task is a message that the assistant answers.");
    fill(this.list, entries.map((entry) => this.item(entry)));
    if (focused) this.list.querySelector(`[data-does="${CSS.escape(focused)}"]`)?.focus();
  }

  showHeartbeat(beat) {
    this.heartbeat.hidden = !beat?.every;
    if (!beat?.every) return;
    const cost = beat.cost ? t("{cost} this month", { cost: money({ amount: beat.cost / 1_000_000, currency: beat.currency }) }) : "";
    fill(this.heartbeat,
      h("p", { class: "due" }, h("span", { class: "kind" }, t("Heartbeat")), h("time", { dateTime: beat.next }, this.local(beat.next))),
      h("p", { class: "about" }, [`${beat.every}, ${beat.active}`, tn(beat.sent, "one sent since the start", "{count} sent since the start"),
        beat.skipped ? tn(beat.skipped, "one skipped", "{count} skipped") : "", cost].filter(Boolean).join(" · "), " · ",
        h("a", { href: `#/chat/${encodeURIComponent(beat.key)}` }, readable(beat.key))));
  }

  item(entry) {
    const name = `schedule-${entry.id}`;
    const more = h("div", { class: "more", hidden: true });
    const details = button(t("Details"), () => this.showDetails(entry, more, details), { "aria-expanded": "false", class: "worded" });
    const act = (path) => () => this.act(() => this.api.post(`${this.address(entry)}/${path}`));
    return h(
      "li",
      { class: entry.paused ? "schedule paused" : "schedule", id: name, tabIndex: -1 },
      h("p", { class: "due" },
        h("span", { class: `kind ${entry.reminder ? "reminder" : "task"}` }, entry.reminder ? t("Reminder") : t("Task")),
        entry.paused ? h("strong", { class: "pause" }, t("Paused")) : entry.next ? h("time", { dateTime: entry.next }, this.local(entry.next)) : t("never again")),
      h("p", { class: "text" }, readable(entry.text)),
      h("p", { class: "about" },
        [entry.rule === "once" ? t("once") : readable(entry.words), entry.missed ? tn(entry.missed, "one missed", "{count} missed") : ""].filter(Boolean).join(" · "),
        " · ", h("a", { href: `#/chat/${encodeURIComponent(entry.key)}` }, readable(entry.key)),
        entry.to ? ` → ${readable(entry.to)}` : ""),
      h("div", { class: "schedule-actions" },
        button(t("Run now"), act("run"), { class: "worded", "data-does": `run-${entry.id}` }),
        entry.paused
          ? button(t("Resume"), act("resume"), { class: "worded", "data-does": `pause-${entry.id}` })
          : button(t("Pause"), act("pause"), { class: "worded", "data-does": `pause-${entry.id}` }),
        details,
        guarded(t("Remove"), t("Remove this schedule?"), t("Remove"), () => this.act(() => this.api.remove(this.address(entry))))),
      more,
    );
  }

  address(entry) {
    return `/api/schedules/${encodeURIComponent(entry.id)}`;
  }

  /** A time in the person's zone, with the day of the week. */
  local(at) {
    return new Intl.DateTimeFormat(locale, { weekday: "short", day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", timeZone: this.zone }).format(new Date(at));
  }

  async showDetails(entry, place, opener) {
    const isOpen = !place.hidden;
    place.hidden = isOpen;
    opener.setAttribute("aria-expanded", String(!isOpen));
    if (isOpen) return;
    try {
      const whole = await this.api.get(this.address(entry));
      const rows = [
        [t("Rule"), readable(whole.rule)],
        [t("Time zone"), whole.zone || t("that of the gateway’s machine")],
        [t("Next times"), whole.upcoming.map((at) => this.local(at)).join("; ") || t("none")],
        [t("Missed ones"), POLICIES[whole.missed_policy] ?? whole.missed_policy],
        [t("Handed over"), String(whole.handed)],
        [t("Set"), this.local(whole.at)],
      ];
      fill(place, h("dl", {}, rows.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))));
    } catch (error) {
      fill(place, h("p", { role: "alert" }, sentence(error)));
    }
  }

  async act(change) {
    try {
      await change();
      await this.load();
    } catch (error) {
      this.status.textContent = sentence(error);
    }
  }

  async added(made) {
    await this.load();
    this.status.textContent = t("Set for {time}.", { time: made.next ? this.local(made.next) : t("never again") });
    this.open(made.id);
  }

  /** Show one schedule of the list. */
  open(id) {
    const item = this.list.querySelector(`#schedule-${CSS.escape(id)}`);
    item?.scrollIntoView({ block: "nearest" });
    item?.focus();
  }
}
