// The page `#/memory`: search, notes, facts. `#/memory/PATH/FIRST/LAST/QUERY/AGENT` opens lines of a note of an agent, or the
// message of a session in these lines that has the most words of the query. `session:ID` stands for the agent of a session.

import { fill, h } from "../elements.js";
import { t } from "../language.js";
import { formsAt } from "../matches.js";
import { FactsView } from "./facts.js";
import { NotesView } from "./notes.js";
import { SearchView } from "./search.js";

const SESSION = /^sessions\/([A-Za-z0-9-]{1,64})\.jsonl$/;

/** Show the memory in an element; returns a function that removes it. */
export async function mount(element, app, { key: path, rest: [first, last, query = "", of = ""] }) {
  const session = SESSION.exec(path)?.[1];
  if (session) return openSession(app, session, first, last, query);
  await app.styles("memory/memory.css");
  const agents = await app.socket.agents();
  if (of) chosen = of.startsWith(OF_SESSION) ? (await app.api.get(`/api/sessions/${encodeURIComponent(of.slice(OF_SESSION.length))}`)).agent : of;
  let page = null;
  const show = (where) => {
    page?.();
    const agent = agents.includes(chosen) ? chosen : MAIN;
    const api = apiOf(app, agent);
    const tabs = [
      ["search", t("Search"), () => new SearchView(api, agent, (key) => app.conversations.nameOf(key))],
      ["notes", t("Notes"), () => new NotesView(api)],
      ["facts", t("Facts"), () => new FactsView(api)],
    ];
    page = new MemoryPage(element, tabs, choice(agents, () => show(["search"]))).mounted(where);
  };
  show(path ? ["notes", path, Number(first) || undefined, Number(last) || undefined, query] : ["search"]);
  return () => page();
}

const MAIN = "main";
const OF_SESSION = "session:";
let chosen = MAIN; // the agent whose memory is shown, as long as this tab is open

/** The API of an agent's memory. */
function apiOf(app, agent) {
  if (agent === MAIN) return app.api;
  const named = (path) => `${path}${path.includes("?") ? "&" : "?"}${new URLSearchParams({ agent })}`;
  return Object.assign(Object.create(app.api), { call: (method, path, options) => app.api.call(method, named(path), options) });
}

/** The choice of an agent; null if there is only one. */
function choice(agents, changed) {
  if (!agents.length) return null;
  const select = h("select", { on: { change: () => {
    chosen = select.value;
    changed();
    document.querySelector(".memory-page select")?.focus();
  } } }, agents.map((name) => h("option", { value: name, selected: name === chosen }, name)));
  return h("label", { class: "of-agent" }, t("Agent"), select);
}

/** Go to a message of a session; the page of the conversation finds the one with the most words among several. */
async function openSession(app, session, first = "1", last = first, query = "") {
  const { key, agent } = await app.api.get(`/api/sessions/${session}`);
  const words = await formsAt(apiOf(app, agent), `sessions/${session}.jsonl#L${first}-L${last}`, query);
  const place = [key, session, first === last ? first : `${first}-${last}`, ...(words ? [words] : [])];
  location.replace(`#/chat/${place.map(encodeURIComponent).join("/")}`);
}

/** Tabs as in the ARIA pattern: arrows move between them, and each keeps what it shows. */
class MemoryPage {
  constructor(element, tabs, above) {
    this.tabs = tabs.map(([name, label, make]) => ({ name, make, view: null, tab: this.tab(name, label), panel: panel(name) }));
    fill(
      element,
      h(
        "div",
        { class: "memory-page" },
        above,
        h("div", { class: "tabs", role: "tablist", "aria-label": t("Memory"), on: { keydown: (event) => this.walk(event) } }, this.tabs.map(({ tab }) => tab)),
        this.tabs.map(({ panel: shown }) => shown),
      ),
    );
  }

  mounted(where) {
    this.go(...where);
    return () => this.tabs.forEach(({ view }) => view?.end?.());
  }

  tab(name, label) {
    return h(
      "button",
      { type: "button", role: "tab", id: `tab-${name}`, "aria-controls": `panel-${name}`, on: { click: () => this.go(name) } },
      label,
    );
  }

  go(name, ...what) {
    for (const each of this.tabs) {
      const isChosen = each.name === name;
      each.tab.setAttribute("aria-selected", String(isChosen));
      each.tab.tabIndex = isChosen ? 0 : -1;
      each.panel.hidden = !isChosen;
      if (!isChosen) continue;
      if (!each.view) {
        each.view = each.make((...where) => this.go(...where));
        each.panel.append(each.view.element);
      }
      each.view.shown?.(...what);
    }
  }

  walk(event) {
    const at = this.tabs.findIndex(({ tab }) => tab === document.activeElement);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: this.tabs.length - 1 }[event.key];
    if (at < 0 || to === undefined) return;
    event.preventDefault();
    const next = this.tabs[(to + this.tabs.length) % this.tabs.length];
    this.go(next.name);
    next.tab.focus();
  }
}

function panel(name) {
  return h("div", { role: "tabpanel", id: `panel-${name}`, "aria-labelledby": `tab-${name}`, hidden: true });
}
