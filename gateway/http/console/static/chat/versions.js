// The versions of a conversation: forks that edit a message or repeat an answer. The page shows one of them at a time, with
// ‹2/3› on each message and answer that has others, and the whole tree in a dialog.
//
// A *point* is a place of a log from which versions continue: an event of the session that they were forked from. The versions
// of a point are the session that goes on there, and its forks.
import { h, readable } from "../elements.js";
import { exactly, when } from "../format.js";
import { t, tn } from "../language.js";

const AROUND = 8; // events after a point among which its first message is
const LONGEST_LABEL = 120;

/** Return the sessions of these rows of one conversation by their ids, oldest first, each as
 * `{session, session_id, at, created, origin, parent, children}`; `at` is empty if `/new` left a session. `origin` is where it parts from its `parent`, as `{session_id, seq}`. */
export function treeOf(rows) {
  const nodes = new Map();
  const add = ({ session, session_id, used, at, created, origin }) => {
    const node = { session, session_id, at: used ?? at, created, origin, parent: null, children: [] };
    if (!nodes.has(session_id)) nodes.set(session_id, node);
  };
  for (const row of rows) add(row);
  for (const { origin } of rows) if (origin?.session) add({ ...origin, at: "", created: "", origin: null }); // `/new` left it
  const sorted = new Map([...nodes].sort(([, one], [, other]) => (one.created < other.created ? -1 : 1)));
  for (const node of sorted.values()) {
    node.origin = partingOf(node, sorted);
    node.parent = sorted.get(node.origin?.session_id) ?? null;
    node.parent?.children.push(node);
  }
  return sorted;
}

/** Where a session parts from the others: a fork before the first own turn of a fork parts from the parent of that. */
function partingOf({ origin }, nodes) {
  let at = origin;
  for (let parent = nodes.get(at?.session_id); parent?.origin && at.seq <= parent.origin.seq + 1; parent = nodes.get(at.session_id)) {
    at = { ...parent.origin, seq: Math.min(at.seq, parent.origin.seq) };
  }
  return at ?? null;
}

/** Return the points of a session's log, `{seq, versions, current}`: the nodes that part there, and the one of the session. */
export function pointsOf(nodes, session) {
  const points = [];
  let limit = Infinity; // up to where the session has this log
  for (let node = nodes.get(session), below = null; node; below = node, limit = node.origin?.seq, node = node.parent) {
    for (const seq of new Set(node.children.map((child) => child.origin.seq))) {
      if (seq > limit) continue;
      const versions = [node, ...node.children.filter((child) => child.origin.seq === seq)];
      points.push({ seq, versions, current: seq === limit ? below : node });
    }
  }
  return points;
}

/** Return the session that was used last among a version of a point and what was forked from it later. */
function lastUsed(node, seq) {
  const later = node.children.filter((child) => child.origin.seq > seq).map((child) => lastUsed(child, child.origin.seq));
  return later.reduce((newest, each) => (each.at > newest.at ? each : newest), node);
}

/** The first messages of versions, which are read once. */
export class Labels {
  constructor(socket) {
    this.socket = socket;
    this.known = new Map();
  }

  /** Return the text of the first message of a session after an event; "" if there is none yet. */
  async of({ session, session_id }, seq) {
    const name = `${session_id}:${seq}`;
    if (this.known.has(name)) return this.known.get(name);
    const frame = { type: "history", session, session_id, before: seq + 1 + AROUND, limit: AROUND };
    const { events } = await this.socket.ask(frame).catch(() => ({ events: [] }));
    const text = events.find((event) => event.seq > seq && event.kind === "message_received")?.text ?? "";
    if (text) this.known.set(name, text);
    return text;
  }
}

/** Marks the entries of an open conversation that have versions: `entry.versions` is `{at, of, choose(at)}`. */
export class Versions {
  /** `go(node, seq, place)` shows another session, which is the same up to the event `seq`; `place` is that of the pager. */
  constructor(app, conversation, go) {
    this.app = app;
    this.conversation = conversation;
    this.go = go;
    this.labels = new Labels(app.socket);
    this.points = [];
    this.stamp = "";
  }

  /** Read what the sidebar knows; resolves to true if the points have changed. */
  async update() {
    const { current, key } = this.conversation;
    const rows = this.app.conversations.conversationOf(key)?.rows;
    if (!current || !rows) return false;
    const points = rows.length > 1 ? pointsOf(treeOf(rows), current.session) : [];
    const stamp = points.map(({ seq, versions }) => [seq, ...versions.map(({ session_id }) => session_id)].join()).join("|");
    if (stamp === this.stamp && this.points.every(({ texts }) => texts.every(Boolean))) return false;
    this.stamp = stamp;
    const read = points.map(async (point) => ({ ...point,
      texts: await Promise.all(point.versions.map((version) => this.labels.of(version, point.seq))) }));
    this.points = await Promise.all(read);
    for (const entry of current.entries.values()) delete entry.versions;
    return true;
  }

  /** Mark the entries at the points: the message if there are versions of it, the answer if there are more for this message. */
  mark() {
    const transcript = this.conversation.current;
    const byTurn = new Map(this.points.map((point) => [transcript.turnAfter(point.seq), point]));
    byTurn.delete(null);
    if (!byTurn.size) return;
    const marked = new Set();
    for (const entry of transcript.entries.values()) {
      const point = byTurn.get(entry.turn);
      if (!point || entry.command || entry.live) continue;
      if (entry.kind === "person" && !marked.has(entry.turn)) {
        marked.add(entry.turn);
        point.texts[point.versions.indexOf(point.current)] = entry.text;
        entry.versions = this.ofMessage(point);
      } else if (entry.kind === "assistant" && !entry.calls.length) entry.versions = this.ofAnswer(point);
    }
  }

  ofMessage({ seq, versions, texts, current }) {
    const text = texts[versions.indexOf(current)];
    const firsts = versions.filter((_, index) => texts.indexOf(texts[index]) === index);
    return this.choice(firsts, versions[texts.indexOf(text)], seq);
  }

  ofAnswer({ seq, versions, texts, current }) {
    const text = texts[versions.indexOf(current)];
    return this.choice(versions.filter((_, index) => texts[index] === text), current, seq);
  }

  choice(versions, current, seq) {
    if (versions.length < 2) return null;
    return { at: versions.indexOf(current), of: versions.length, choose: (at, place) => this.go(lastUsed(versions[at], seq), seq, place) };
  }
}

/** Return the element ‹2/3› of an entry with this element. */
export function pager({ at, of, choose }, element) {
  const place = (step) => ({ step, answer: element.matches(".assistant"), top: element.getBoundingClientRect().top });
  const step = (by, words, symbol) => h("button", { class: "quiet", type: "button", "data-step": by, title: words, "aria-label": words,
    disabled: at + by < 0 || at + by >= of, on: { click: () => choose(at + by, place(by)) } }, symbol);
  return h("span", { class: "pager", role: "group", "aria-label": t("Version {at} of {of}", { at: at + 1, of }) },
    step(-1, t("Previous version"), "‹"), h("span", { "aria-hidden": "true" }, `${at + 1}/${of}`), step(1, t("Next version"), "›"));
}

/** Show the tree of a conversation's versions in a dialog. */
export async function showTree(app, { name, rows }, open) {
  const nodes = treeOf(rows);
  const labels = new Labels(app.socket);
  const close = () => dialog.close();
  const item = (node) => {
    const label = h("span", { class: "label" }, readable(name));
    labels.of(node, node.origin?.seq ?? 0).then((text) => {
      if (text) label.textContent = readable(text.slice(0, LONGEST_LABEL));
    });
    const link = h("a", { href: `#/chat/${encodeURIComponent(node.session)}`, "aria-current": node.session === open ? "page" : null, on: { click: close } },
      label, node.at ? h("time", { class: "faint", dateTime: node.at, title: exactly(node.at) }, when(node.at)) : null);
    return h("li", {}, link, node.children.length ? h("ul", {}, node.children.map(item)) : null);
  };
  const roots = [...nodes.values()].filter((node) => !node.parent);
  const heading = t("Versions of this conversation");
  const dialog = h("dialog", { class: "tree", "aria-label": heading, on: { close: () => dialog.remove() } },
    h("h2", {}, heading), h("p", { class: "faint small" }, tn(rows.length, "{count} version", "{count} versions")),
    h("ul", {}, roots.map(item)), h("div", { class: "choices" }, h("button", { type: "button", on: { click: close } }, t("Close"))));
  document.body.append(dialog);
  dialog.showModal();
  (dialog.querySelector("[aria-current]") ?? dialog.querySelector("a"))?.focus();
}
