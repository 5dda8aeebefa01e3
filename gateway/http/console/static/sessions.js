// The list of sessions in the sidebar, by the time of their last event, filtered by the search.
import { fill, h, readable } from "./elements.js";
import { icon } from "./icons.js";
import { ago } from "./format.js";

const REFRESH = 30_000;
const SHOWN = 200; // rows in the document; the search finds the others

export class Sessions {
  constructor(app) {
    this.app = app;
    this.rows = [];
    this.open = "";
    this.page = "chat";
    this.list = h("ul", {});
    this.input = h("input", { type: "search", placeholder: "Search", "aria-label": "Search sessions", autocomplete: "off",
      on: { input: () => this.draw() } });
    const fresh = h("button", { class: "quiet", type: "button", title: "New session", "aria-label": "New session",
      on: { click: () => app.go("#/chat/~") } }, icon("plus"));
    this.element = h("nav", { class: "sessions", "aria-label": "Sessions" },
      h("div", { class: "seek" }, h("span", { class: "field" }, icon("search"), this.input), fresh),
      this.list);
    app.socket.on("welcome", () => this.refresh());
    app.socket.on("accepted", (frame) => this.rows.some((row) => row.session === frame.session) || this.refresh());
    app.socket.on("forked", () => this.refresh());
    app.socket.on("settings", (frame) => this.onSettings(frame));
    app.socket.on("event", (frame) => this.onEvent(frame));
    setInterval(() => document.visibilityState === "visible" && this.refresh(), REFRESH);
  }

  /** Load the sessions. */
  async refresh() {
    try {
      this.rows = (await this.app.socket.ask({ type: "sessions" })).sessions;
      this.draw();
    } catch (error) {
      if (error.code !== "closed") throw error;
    }
  }

  /** Move a session with a new event to the top. */
  onEvent({ session, event }) {
    const row = this.rows.find((each) => each.session === session);
    if (!row) return;
    row.at = event.at;
    const asked = row.question;
    if (event.kind === "approval_asked") row.question = event.seq;
    if (event.kind === "approval_given" || event.kind === "turn_ended") delete row.question;
    if (this.rows[0] !== row || asked !== row.question) this.draw();
  }

  /** Set the title of a session. */
  onSettings({ session, title }) {
    const row = this.rows.find((each) => each.session === session);
    if (!row || row.title === title) return;
    row.title = title;
    this.draw();
  }

  /** Mark the session of a route as open. */
  mark(route) {
    this.open = route.key;
    this.page = route.page === "context" ? "context" : "chat";
    this.draw();
  }

  draw() {
    const wanted = this.input.value.trim().toLowerCase();
    this.rows.sort((one, other) => other.at.localeCompare(one.at));
    const found = this.rows.filter((row) => `${row.title} ${row.session}`.toLowerCase().includes(wanted));
    fill(this.list, found.slice(0, SHOWN).map((row) => this.row(row)),
      found.length ? null : h("li", { class: "faint" }, wanted ? "No matching conversations." : "No sessions yet."),
      found.length > SHOWN ? h("li", { class: "faint" }, `${found.length - SHOWN} more; search to find them.`) : null);
  }

  row(row) {
    const current = row.session === this.open ? "page" : null;
    const link = h("a", { href: `#/${this.page}/${encodeURIComponent(row.session)}`, "aria-current": current },
      h("span", { class: "name" }, readable(row.title) || row.session),
      row.question ? h("span", { class: "asks" }, "waits for you") : h("time", { class: "faint", dateTime: row.at }, ago(row.at)));
    return h("li", {}, link);
  }
}
