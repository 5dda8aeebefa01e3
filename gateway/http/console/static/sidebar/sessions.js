// The sidebar's list of conversations: pinned ones, then by date of the last event; archived ones are folded at the end.
//
//   conversations   rows of the gateway as conversations with their versions, and their groups
//   virtual_list    draws the visible part of the list
//   menu            the menu of a conversation: actions
//   search          the full-text search
//   seen            which answers were shown in this browser
import { h, readable } from "../elements.js";
import { exactly } from "../format.js";
import { icon } from "../icons.js";
import { t, tn } from "../language.js";
import { Actions } from "./actions.js";
import { conversationsOf, groupsOf, nameOfKey, subagentsOf } from "./conversations.js";
import { Search } from "./search.js";
import { Seen } from "./seen.js";
import { VirtualList } from "./virtual_list.js";

const REFRESH = 30_000;
const DEEPEST = 2; // levels of subagents that are indented
const FOLD = "#archived"; // the key of the button that unfolds the archived conversations; `#` is in no key of a conversation

/** Dispatches `change` when conversations or their names may have changed. */
export class Sessions extends EventTarget {
  constructor(app) {
    super();
    this.app = app;
    this.rows = [];
    this.conversations = [];
    this.loaded = false;
    this.open = "";
    this.page = "chat";
    this.unfolded = false; // true if the archived conversations are shown
    this.seen = new Seen(app.person.id);
    this.actions = new Actions(app, this);
    this.list = new VirtualList((item) => this.make(item));
    this.empty = h("p", { class: "faint small", hidden: true });
    this.search = new Search(app, this);
    const fresh = h("button", { class: "quiet", type: "button", title: t("New conversation"), "aria-label": t("New conversation"),
      on: { click: () => app.go("#/chat/~") } }, icon("plus"));
    this.element = h("nav", { class: "sessions", "aria-label": t("Conversations") },
      h("div", { class: "seek" }, this.search.field, fresh), this.search.results, this.empty, this.list.element);
    app.socket.on("welcome", () => this.refresh());
    app.socket.on("accepted", (frame) => this.rowOf(frame.session) || this.refresh());
    app.socket.on("forked", () => this.refresh());
    app.socket.on("settings", (frame) => this.onSettings(frame));
    app.socket.on("deleted", (frame) => this.onDeleted(frame));
    app.socket.on("session_update", (frame) => this.onUpdate(frame));
    document.addEventListener("visibilitychange", () => this.draw());
    setInterval(() => document.visibilityState === "visible" && this.refresh(), REFRESH);
  }

  rowOf(key) {
    return this.rows.find((row) => row.session === key);
  }

  /** Return the conversation with this key among its versions. */
  conversationOf(key) {
    return this.conversations.find(({ rows }) => rows.some((row) => row.session === key));
  }

  /** Return the name to show for a key. */
  nameOf(key) {
    return this.conversationOf(key)?.name ?? nameOfKey(key);
  }

  /** Open the menu of the conversation with this key beside a button. */
  menu(anchor, key) {
    const conversation = this.conversationOf(key);
    if (conversation) this.actions.menu(anchor, conversation);
  }

  // --- rows ------------------------------------------------------------------------------------------------------------

  /** Load the sessions. */
  async refresh() {
    try {
      this.rows = (await this.app.socket.ask({ type: "sessions", follow: true })).sessions;
      this.loaded = true;
      this.seen.begin(this.rows);
      this.draw();
    } catch (error) {
      if (error.code !== "closed") throw error;
    }
  }

  onUpdate({ session, session_id, event }) {
    const row = this.rowOf(session);
    if (row?.session_id !== session_id) return void this.refresh(); // it is new
    if (event.seq <= row.head) return; // it was listed
    row.head = event.seq;
    const silent = event.client === "heartbeat" || event.dropped; // a heartbeat with nothing to say leaves the row's place
    if (/^(message_received|turn_ended|command_answered)$/.test(event.kind) && !silent) delete row.used;
    else row.used ??= row.at;
    if (event.kind === "session_titled") row.title = event.title ?? "";
    row.at = event.at;
    if (event.kind === "approval_asked") row.question = event.seq;
    if (event.kind === "approval_given" || event.kind === "turn_ended") delete row.question;
    if (event.kind === "turn_started" || event.kind === "turn_resumed") row.running = true;
    if (event.kind === "turn_ended") delete row.running;
    if ((event.kind === "turn_ended" && !event.dropped) || event.kind === "command_answered") row.replied = event.seq;
    this.draw();
  }

  onSettings({ session, title, pinned, archived }) {
    const row = this.rowOf(session);
    if (!row) return;
    Object.assign(row, { title, pinned, archived });
    this.draw();
  }

  /** A conversation was deleted, in this tab or elsewhere: leave its page, and keep nothing of it in this browser. */
  onDeleted({ session }) {
    this.rows = this.rows.filter((row) => row.session !== session);
    this.seen.forget(session);
    this.app.forget(session);
    this.draw();
  }

  /** Mark the conversation of a route as open. */
  mark(route) {
    this.open = route.key;
    this.page = route.page === "context" ? "context" : "chat";
    this.draw();
  }

  // --- drawing ---------------------------------------------------------------------------------------------------------

  /** Draw the list in the next animation frame. */
  draw() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      this.drawNow();
    });
  }

  drawNow() {
    const open = this.rowOf(this.open);
    if (open && this.page === "chat" && document.visibilityState === "visible") this.seen.mark(open);
    const unread = (row) => this.seen.unread(row);
    this.conversations = conversationsOf(this.rows, { open: this.open, unread });
    this.dispatchEvent(new CustomEvent("change"));
    const searching = this.search.wanted !== "";
    this.list.element.hidden = searching;
    this.search.draw();
    this.empty.hidden = searching || !this.loaded || this.rows.length > 0;
    this.empty.textContent = t("No conversations yet. The first message begins one.");
    if (!searching) this.list.show(this.items(), this.conversationOf(this.open)?.key ?? "");
  }

  items() {
    const items = [];
    const subagents = subagentsOf(this.conversations);
    const below = new Set([...subagents.values()].flat());
    const add = (conversation, depth = 0) => {
      const children = subagents.get(conversation.key) ?? [];
      items.push({ key: conversation.key, link: true, conversation, depth, children: children.length });
      if (this.unfolds(conversation, children)) for (const child of children) add(child, Math.min(depth + 1, DEEPEST));
    };
    for (const { name, conversations } of groupsOf(this.conversations.filter((each) => !below.has(each)))) {
      items.push({ key: `#${name}`, name });
      conversations.forEach((conversation) => add(conversation));
    }
    const archived = this.conversations.filter((conversation) => conversation.archived && !below.has(conversation));
    if (archived.length) items.push({ key: FOLD, link: true, archived: archived.length });
    if (this.unfolded) archived.forEach((conversation) => add(conversation));
    items.filter((item) => item.conversation).forEach((item, index, all) => Object.assign(item, { position: index + 1, size: all.length }));
    return items;
  }

  /** True if the subagents of a conversation are shown: it or one of them is open, runs, or waits for an answer. */
  unfolds(conversation, children) {
    const shown = ({ rows, running, question }) => running || question || rows.some((row) => row.session === this.open);
    return children.length > 0 && [conversation, ...children].some(shown);
  }

  make(item) {
    if (item.conversation) return new Row(this);
    return item.key === FOLD ? new Fold(this) : new Heading(item.name);
  }
}

class Heading {
  constructor(name) {
    this.element = h("li", { class: "group" }, h("h2", {}, name));
  }

  update() {}
}

/** The button that shows the archived conversations. */
class Fold {
  constructor(sidebar) {
    this.name = h("span", {});
    this.button = h("button", { class: "fold", type: "button", "data-focus": "", on: { click: () => {
      sidebar.unfolded = !sidebar.unfolded;
      sidebar.draw();
    } } }, icon("archive"), this.name, icon("down"));
    this.sidebar = sidebar;
    this.element = h("li", { class: "group" }, this.button);
  }

  update({ archived }) {
    this.name.textContent = tn(archived, "{count} archived", "{count} archived");
    this.button.setAttribute("aria-expanded", String(this.sidebar.unfolded));
  }
}

class Row {
  constructor(sidebar) {
    this.sidebar = sidebar;
    this.name = h("span", { class: "name" });
    this.marks = h("span", { class: "marks" });
    this.link = h("a", { "data-focus": "" }, this.name, this.marks);
    this.more = h("button", { class: "quiet more", type: "button", "aria-haspopup": "menu",
      on: { click: () => this.menu() } }, icon("more"));
    this.element = h("li", { class: "row", on: { contextmenu: (event) => this.onContextMenu(event), keydown: (event) => this.onKeydown(event) } },
      this.link, this.more);
    this.stamp = "";
  }

  menu() {
    this.sidebar.actions.menu(this.more, this.conversation);
  }

  onContextMenu(event) {
    event.preventDefault();
    this.menu();
  }

  onKeydown(event) {
    const act = { F2: "rename", Delete: "delete" }[event.key];
    if (!act) return;
    event.preventDefault();
    this.sidebar.actions[act](this.conversation);
  }

  update({ conversation, position, size, depth, children }) {
    const { page, open } = this.sidebar;
    const { shown, name, at, question, running, unread, fork, pinned } = conversation;
    this.conversation = conversation;
    const current = conversation.rows.some((row) => row.session === open);
    const stamp = [name, at, shown.session, page, current, question, running, unread, fork, pinned, position, size, depth, children].join("|");
    if (stamp === this.stamp) return;
    this.stamp = stamp;
    this.name.textContent = readable(name) || shown.session;
    this.link.href = `#/${page}/${encodeURIComponent(shown.session)}`;
    this.link.title = [readable(name), ...(name === shown.session ? [] : [shown.session]), exactly(at)].join("\n");
    if (current) this.link.setAttribute("aria-current", "page");
    else this.link.removeAttribute("aria-current");
    this.element.classList.toggle("unread", unread && !current);
    this.element.classList.toggle("child", depth > 0);
    if (depth) this.element.setAttribute("aria-level", depth + 1);
    else this.element.removeAttribute("aria-level");
    this.element.setAttribute("aria-posinset", position);
    this.element.setAttribute("aria-setsize", size);
    this.more.setAttribute("aria-label", t("Actions for “{name}”", { name: readable(name) }));
    this.marks.replaceChildren(...marksOf(conversation, current), ...countOf(children));
  }
}

/** Return the mark of a conversation with so many subagents. */
function countOf(children) {
  if (!children) return [];
  const words = tn(children, "{count} subagent", "{count} subagents");
  return [h("span", { class: "children", title: words }, icon("subagent"), h("span", { "aria-hidden": "true" }, String(children)), h("span", { class: "unseen" }, words))];
}

/** Return what is shown beside a conversation's name: the most urgent state, in words for screen readers. */
function marksOf({ question, running, unread, fork, pinned }, current) {
  const marks = [];
  if (fork) marks.push(icon("fork"), h("span", { class: "unseen" }, t("A fork")));
  if (pinned) marks.push(icon("pin"));
  if (question) marks.push(h("span", { class: "asks" }, t("waits for you")));
  else if (running) marks.push(h("span", { class: "pulse" }), h("span", { class: "unseen" }, t("is being answered")));
  else if (unread && !current) marks.push(h("span", { class: "dot" }), h("span", { class: "unseen" }, t("has a new answer")));
  return marks;
}
