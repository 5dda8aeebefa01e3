// The console: the gateway's web interface. No build step; each file is a module.
//
//   app           entry point: sign-in, then the shell, then the page of the URL (`#/chat/main`)
//   shell         the frame of every page: navigation, conversations (sidebar/), sign-out
//   sign_in       the form, and the one-time link
//   preferences   theme, notifications; installing: the service worker, which starts the page offline
//   chat          the page of a conversation; lists its own modules
//   context/, memory/, skills/, schedules/, health/, settings/   their pages, each with its style sheet
//   api, socket   the gateway over HTTP and over the websocket
//   elements, icons, controls, markdown   elements, icons, buttons and dialogs, rendered text
//   matches         searched words in texts, and their highlights
//   format, theme   numbers, durations and times in words; light and dark
//   language        `t`, `tn`, `th`: every text that a person sees, in their language
//
// A page is a module that exports `mount(element, app, route)`: it fills `element` (an empty <main>) and returns a function to
// call when the page is left, if any. `route` is `{page, key, rest}`; a page is mounted anew for another key. `app` has:
//
//   api, socket             the modules of these names
//   conversations           the sidebar's list: `nameOf(key)`, `menu(anchor, key)`
//   person, server          who is signed in, `{id, name}`; the program and its version
//   go(hash)                navigate to another page
//   head(title, ...actions) set the page's heading, and elements next to it
//   attention(questions)    show in the browser's title how many questions wait for the person
//   composer                the input of the page, null if it has none
//   announce(sentence)      announce to screen readers; nothing is shown
//   notice(sentence, button) show a sentence for some seconds, or with a button for as long as the page is open
//   styles(name)            load a style sheet once; await it before filling
import { Api } from "./api.js";
import { button } from "./controls.js";
import { h, readable } from "./elements.js";
import { install } from "./installing.js";
import { t } from "./language.js";
import { Shell } from "./shell.js";
import { linkInAddress, offline, signIn } from "./sign_in.js";
import { Socket } from "./socket.js";
import * as theme from "./theme.js";

const PAGES = {
  chat: () => import("./chat/chat.js"),
  context: () => import("./context/context.js"),
  memory: () => import("./memory/memory.js"),
  skills: () => import("./skills/skills.js"),
  schedules: () => import("./schedules/schedules.js"),
  health: () => import("./health/health.js"),
  settings: () => import("./settings/settings.js"),
};
const OF_A_SESSION = ["chat", "context"];
const FRESH = "~"; // in place of a key: a session that has none yet
const LAST = "exuvia.session";
const NOTICE_SECONDS = 8;
const ANNOUNCED = 20; // sentences that stay for screen readers

class App {
  constructor(place) {
    this.place = place;
    this.api = new Api(() => this.expelled());
    this.socket = new Socket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws`);
    this.socket.on("expelled", () => this.expelled());
    this.socket.on("state", (state) => state === "open" && this.connected());
    this.leave = null;
    this.composer = null; // that of the page, if it has one
    this.signingOut = false;
    this.title = "Exuvia";
    this.questions = 0;
    this.sheets = new Map();
    this.tabs = new BroadcastChannel("exuvia"); // announces who is signed in, "" for nobody: all tabs share the cookie
    this.tabs.onmessage = ({ data }) => data !== (this.shell ? this.person.id : "") && location.reload();
    addEventListener("hashchange", () => this.shell && this.onHashChange());
    addEventListener("keydown", (event) => this.shell && this.onKeydown(event));
    install(this);
  }

  async begin() {
    const link = linkInAddress();
    let reason = "";
    let session = null;
    try {
      session = link ? this.signedIn(await this.api.post("/api/sign-in", { link })) : await this.known();
    } catch (error) {
      if (error instanceof TypeError && !link) return offline(this.place);
      reason = error.message;
      session = link ? await this.known() : null;
    }
    await this.enter(session ?? this.signedIn(await signIn(this.place, this.api, reason)));
  }

  /** Handle a changed URL: show another page, or use a sign-in link, which signs in every tab. */
  async onHashChange() {
    const link = linkInAddress();
    if (!link) return this.show();
    try {
      const { person } = this.signedIn(await this.api.post("/api/sign-in", { link }));
      if (person.id !== this.person.id) return location.reload();
    } catch (error) {
      this.notice(error.message);
    }
    this.show();
  }

  /** Open the palette by Ctrl+K, and the list of keys by ? where nothing is typed. */
  async onKeydown(event) {
    if (event.defaultPrevented || event.isComposing || event.altKey) return;
    const palette = (event.ctrlKey || event.metaKey) && !event.shiftKey && event.key.toLowerCase() === "k";
    const writes = event.target.closest?.("input, textarea, select, dialog, [contenteditable]");
    if (!palette && (event.key !== "?" || event.ctrlKey || event.metaKey || writes)) return;
    event.preventDefault();
    const { openKeys, openPalette } = await import("./composer/palette.js");
    if (palette) await openPalette(this);
    else await openKeys(this);
  }

  /** Tell the other tabs about a new sign-in. */
  signedIn(session) {
    this.tabs.postMessage(session.person.id);
    return session;
  }

  /** Return who is signed in; null if nobody. */
  async known() {
    const session = await this.api.get("/api/session");
    return session.person ? session : null;
  }

  async enter({ person, server }) {
    Object.assign(this, { person, server });
    this.shell = new Shell(this);
    this.place.replaceChildren(this.shell.element);
    this.socket.open();
    await this.show();
  }

  /** Show only the sign-in form, because the browser is no longer signed in. Drafts are kept. */
  async expelled(reason = t("You were signed out.")) {
    if (!this.shell || this.signingOut) return;
    this.depart();
    this.socket.close();
    this.shell = null;
    await this.enter(this.signedIn(await signIn(this.place, this.api, reason)));
  }

  async signOut() {
    if (this.signingOut) return;
    this.signingOut = true; // the websocket closes before the answer, which says whether the sign-out was stored
    const refused = await this.api.post("/api/sign-out").then(() => null, (error) => (error.status ? error : null));
    this.signingOut = false;
    this.tabs.postMessage("");
    if (refused) return this.expelled(refused.message);
    location.replace("/");
    location.reload();
  }

  // --- pages -----------------------------------------------------------------------------------------------------------

  /** Show the page of the URL. A page that needs a session takes the last open one. */
  get route() {
    const [page = "chat", key = "", ...rest] = location.hash.replace(/^#\/?/, "").split("/").map(decode);
    const known = page in PAGES ? page : "chat";
    return { page: known, key: key || (OF_A_SESSION.includes(known) ? this.lastKey : ""), rest };
  }

  get conversations() {
    return this.shell.sessions;
  }

  /** A conversation was deleted. */
  forget(key) {
    if (this.lastKey === key) localStorage.removeItem(LAST);
    if (OF_A_SESSION.includes(this.route.page) && this.route.key === key) this.go(`#/chat/${FRESH}`);
    for (const kind of ["draft", "unsent"]) localStorage.removeItem(`exuvia.${kind}.${key}`);
  }

  get lastKey() {
    return localStorage.getItem(LAST) || "main";
  }

  go(hash) {
    if (location.hash === hash) this.show();
    else location.hash = hash;
  }

  async show() {
    const route = this.route;
    this.depart();
    if (OF_A_SESSION.includes(route.page) && route.key !== FRESH) localStorage.setItem(LAST, route.key);
    const place = this.shell.turnTo(route);
    const shown = (this.shown = Symbol(route.page));
    try {
      const page = await PAGES[route.page]();
      if (this.shown !== shown) return;
      const leave = (await page.mount(place, this, route)) ?? null;
      if (this.shown === shown) this.leave = leave;
      else leave?.(); // another page is shown by now, and has its own
    } catch (error) {
      console.error(error);
      place.replaceChildren(h("div", { class: "empty" }, h("p", {}, t("The page could not be loaded: {reason}", { reason: error.message }))));
    }
  }

  depart() {
    const leave = this.leave;
    this.leave = null;
    leave?.();
  }

  head(title, ...actions) {
    this.title = `${readable(title)} · Exuvia`;
    this.showTitle();
    this.shell.head(title, actions);
  }

  attention(questions) {
    this.questions = questions;
    this.showTitle();
  }

  showTitle() {
    document.title = this.questions ? t("({count}) Waiting for you · {title}", { count: this.questions, title: this.title }) : this.title;
  }

  styles(name) {
    if (!this.sheets.has(name)) {
      const loaded = new Promise((resolve, reject) => {
        const href = new URL(name, import.meta.url).href;
        document.head.append(h("link", { rel: "stylesheet", href, on: { load: resolve, error: reject } }));
      });
      this.sheets.set(name, loaded);
    }
    return this.sheets.get(name);
  }

  /** After a reconnect, offer to load the page again if the gateway was updated. */
  async connected() {
    if (!this.wasOpen) return void (this.wasOpen = true);
    const page = await fetch("/", { cache: "no-store" }).then((response) => response.text(), () => "");
    const isOld = page && !page.includes(new URL(".", import.meta.url).pathname);
    if (isOld) this.notice(t("The gateway has a new version of this page."), button(t("Load it"), () => location.reload()));
  }

  // --- messages --------------------------------------------------------------------------------------------------------

  announce(sentence) {
    const region = document.getElementById("announcements");
    region.append(h("p", {}, sentence));
    if (region.childElementCount > ANNOUNCED) region.firstChild.remove();
  }

  notice(sentence, action = null) {
    const shown = h("p", { class: "notice" }, sentence, action);
    document.getElementById("notices").append(shown);
    if (!action) setTimeout(() => shown.remove(), NOTICE_SECONDS * 1000);
  }
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

theme.apply();
new App(document.getElementById("app")).begin();
