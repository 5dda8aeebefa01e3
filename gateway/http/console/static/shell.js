// The frame of every page: navigation, sessions, theme, and the signed-in person.
import { fill, h, readable } from "./elements.js";
import { icon } from "./icons.js";
import { t } from "./language.js";
import { Sessions } from "./sidebar/sessions.js";
import { preferences } from "./preferences.js";

const PLACES = [
  ["chat", t("Chat")],
  ["context", t("Context")],
  ["memory", t("Memory")],
  ["skills", t("Skills")],
  ["schedules", t("Schedules")],
  ["health", t("Health")],
  ["settings", t("Settings")],
];
const STATES = { open: t("Connected"), connecting: t("Connecting…"), closed: t("Not connected") };

export class Shell {
  constructor(app) {
    this.app = app;
    this.sessions = new Sessions(app);
    this.places = new Map(PLACES.map(([page, name]) => [page, h("a", { href: `#/${page}` }, icon(page), name)]));
    this.title = h("h1", { class: "title" });
    this.actions = h("div", { class: "actions" });
    this.page = h("main", { id: "page" });
    this.state = h("span", { class: "state", role: "status" });
    this.connection = h("span", { class: "state connection", role: "img" }); // where the sidebar is hidden
    this.menu = h("button", { class: "quiet menu", type: "button", "aria-label": t("Navigation"), "aria-expanded": "false",
      "aria-controls": "side", on: { click: () => this.open(!this.isOpen) } }, icon("menu"));
    this.side = h("div", { id: "side", class: "side" },
      h("a", { class: "brand", href: "#/chat" }, h("img", { src: new URL("./pictures/icon.svg", import.meta.url).href, alt: "" }), "Exuvia"),
      h("nav", { class: "places", "aria-label": t("Pages") }, [...this.places.values()]),
      this.sessions.element,
      this.foot());
    this.veil = h("div", { class: "veil", on: { click: () => this.open(false) } });
    this.element = h("div", { class: "shell" },
      h("a", { class: "skip", href: "#page", on: { click: (event) => this.skip(event) } }, t("Skip to content")),
      this.side, this.veil,
      h("div", { class: "front" },
        h("header", { class: "bar" }, this.menu, this.title, this.connection, this.actions),
        this.page));
    this.element.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || !this.isOpen) return;
      event.preventDefault();
      this.open(false);
    });
    app.socket.on("state", (state) => this.showState(state));
    this.showState(app.socket.state);
  }

  get isOpen() {
    return this.element.classList.contains("opened");
  }

  /** Show or hide the sidebar where it overlaps the page. */
  open(opened) {
    if (opened === this.isOpen) return;
    this.element.classList.toggle("opened", opened);
    this.menu.setAttribute("aria-expanded", String(opened));
    if (opened) this.side.querySelector("a[aria-current], a").focus();
    else if (this.side.contains(document.activeElement)) this.menu.focus();
  }

  skip(event) {
    event.preventDefault();
    (this.page.querySelector("textarea, input, button, a") ?? this.page).focus();
  }

  /** Switch to a route; returns the empty element for its page. */
  turnTo(route) {
    for (const [page, link] of this.places) {
      if (page === route.page) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    for (const page of ["chat", "context"]) this.places.get(page).href = `#/${page}/${encodeURIComponent(this.app.lastKey)}`;
    this.sessions.mark(route);
    this.open(false);
    this.head(PLACES.find(([page]) => page === route.page)[1], []);
    const fresh = h("main", { id: "page", class: `page ${route.page}`, tabIndex: -1 });
    this.page.replaceWith(fresh);
    this.page = fresh;
    return fresh;
  }

  head(title, actions) {
    this.title.textContent = readable(title);
    const shown = this.actions.children; // they keep the focus if they stay
    if (actions.length !== shown.length || actions.some((action, index) => action !== shown[index])) fill(this.actions, actions);
  }

  showState(state) {
    this.state.dataset.state = state;
    this.state.textContent = STATES[state];
    this.connection.dataset.state = state;
    this.connection.title = STATES[state];
    this.connection.setAttribute("aria-label", STATES[state]);
    this.connection.textContent = state === "open" ? "" : STATES[state];
  }

  foot() {
    const { person } = this.app;
    const out = h("button", { class: "quiet", type: "button", title: t("Sign out"), "aria-label": t("Sign out"),
      on: { click: () => this.app.signOut() } }, icon("out"));
    return h("footer", { class: "foot" },
      h("div", { class: "who" }, h("span", { class: "whose" }, person.name), this.state),
      preferences(), out);
  }
}
