// The console: what a browser shows of its gateway. No build step; each file is a module with one noun.
//
//   app           begins: signing in, then the shell, then the page that the address names (`#/chat/main`)
//   shell         what stands around every page: places, sessions, theme, signing out; sessions.js is their list
//   sign_in       the form, and the one-time link
//   chat          a conversation: its page; see there for its parts
//   context       what a session's requests held: context_plot, context_turn; in_log: what the log has of a message
//   memory        what is remembered: memory_search, memory_notes (with line_changes), memory_facts
//   health        how the gateway is, with a small_plot of each thing
//   typed, prose, button, quantities   a command typed from a page; Markdown; buttons; numbers in words
//   api, socket   the gateway over HTTP and over the websocket
//   elements, icons, theme, moments, dialogs   the document's parts
//
// A page is a module that exports `mount(element, app, route)`: it fills `element` (an empty <main>) and returns what is to
// be called when it is left, if anything. `route` is `{page, key, rest}`; a page is mounted anew for another key. `app` has:
//
//   api, socket             see there
//   person, server          who is signed in, `{id, name}`; the program and its version
//   go(hash)                to another page
//   head(title, ...actions) the heading of the page, and elements that stand beside it
//   announce(sentence)      for those who listen: said politely; nothing is seen
//   notice(sentence)        a sentence that everybody should see, for some seconds
//   styles(name)            loads a style sheet of the console once; await it before filling
import { Api } from "./api.js";
import { h, readable } from "./elements.js";
import { Shell } from "./shell.js";
import { linkInAddress, signIn } from "./sign_in.js";
import { Socket } from "./socket.js";
import * as theme from "./theme.js";

const PAGES = {
  chat: () => import("./chat.js"),
  context: () => import("./context.js"),
  memory: () => import("./memory.js"),
  health: () => import("./health.js"),
};
const OF_A_SESSION = ["chat", "context"];
const FRESH = "~"; // in the place of a key: a session that has none yet
const LAST = "exuvia.session";
const NOTICE_SECONDS = 8;
const SAID = 20; // sentences that stay for those who listen

class App {
  constructor(place) {
    this.place = place;
    this.api = new Api(() => this.expelled());
    this.socket = new Socket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws`);
    this.socket.on("expelled", () => this.expelled());
    this.leave = null;
    this.signingOut = false;
    this.sheets = new Map();
    this.tabs = new BroadcastChannel("exuvia"); // says who is signed in now, "" for nobody: the cookie is that of every tab
    this.tabs.onmessage = ({ data }) => data !== (this.shell ? this.person.id : "") && location.reload();
    addEventListener("hashchange", () => this.shell && this.turn());
  }

  async begin() {
    const link = linkInAddress();
    let reason = "";
    let session = null;
    try {
      session = link ? this.signedIn(await this.api.post("/api/sign-in", { link })) : await this.known();
    } catch (error) {
      reason = error.message;
      session = link ? await this.known() : null;
    }
    await this.enter(session ?? this.signedIn(await signIn(this.place, this.api, reason)));
  }

  /** The address changed: another page, or a link that signs its person in, here and in every tab. */
  async turn() {
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

  /** Tell the other tabs of a session that has just begun. */
  signedIn(session) {
    this.tabs.postMessage(session.person.id);
    return session;
  }

  /** Who is signed in; null if nobody. */
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

  /** The browser is signed in no more: the form comes in the place of everything, and what was typed is kept. */
  async expelled(reason = "You were signed out.") {
    if (!this.shell || this.signingOut) return;
    this.depart();
    this.socket.close();
    this.shell = null;
    await this.enter(this.signedIn(await signIn(this.place, this.api, reason)));
  }

  async signOut() {
    if (this.signingOut) return;
    this.signingOut = true; // the websocket is closed before the answer comes, which alone says whether it was stored
    const refused = await this.api.post("/api/sign-out").then(() => null, (error) => (error.status ? error : null));
    this.signingOut = false;
    this.tabs.postMessage("");
    if (refused) return this.expelled(refused.message);
    location.replace("/");
    location.reload();
  }

  // --- pages -----------------------------------------------------------------------------------------------------------

  /** The page that the address names. A page of a session without one has the session that was open last. */
  get route() {
    const [page = "chat", key = "", ...rest] = location.hash.replace(/^#\/?/, "").split("/").map(decode);
    const known = page in PAGES ? page : "chat";
    return { page: known, key: key || (OF_A_SESSION.includes(known) ? this.lastKey : ""), rest };
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
      this.leave = (await page.mount(place, this, route)) ?? null;
      if (this.shown !== shown) this.depart();
    } catch (error) {
      console.error(error);
      place.replaceChildren(h("div", { class: "empty" }, h("p", {}, `This page could not be shown: ${error.message}`)));
    }
  }

  depart() {
    const leave = this.leave;
    this.leave = null;
    leave?.();
  }

  head(title, ...actions) {
    document.title = `${readable(title)} · Exuvia`;
    this.shell.head(title, actions);
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

  // --- telling ---------------------------------------------------------------------------------------------------------

  announce(sentence) {
    const told = document.getElementById("told");
    told.append(h("p", {}, sentence));
    if (told.childElementCount > SAID) told.firstChild.remove();
  }

  notice(sentence) {
    const shown = h("p", { class: "notice" }, sentence);
    document.getElementById("notices").append(shown);
    setTimeout(() => shown.remove(), NOTICE_SECONDS * 1000);
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
