// The conversations of the sidebar: made of the rows of the frame `sessions`, and grouped by date.
//
// A fork that edits a message or repeats an answer is a version of the same conversation: its key was derived by the gateway
// (`main-fork-2`). A fork with a key of its own is another conversation.
import { locale, t } from "../language.js";

const VERSION = /-fork(-\d+)?$/;
const MADE = /-(?=[a-z]*\d)(?=\d*[a-z])[a-z\d]{4}$/; // the end of keys that the console makes of first messages
const DATED = /^chat-\d{4}-\d\d-\d\d-[a-z\d]{4}$/; // such a key of a message without Latin letters
const MAIN = "main"; // the key of clients that were given none
const DAY = 86_400_000;
const month = new Intl.DateTimeFormat(locale, { month: "long" });
const monthOfYear = new Intl.DateTimeFormat(locale, { month: "long", year: "numeric" });

/** True if a fork with this key is a version of the conversation that it was forked from. */
export const isVersionKey = (key) => VERSION.test(key);

const isVersion = (row) => Boolean(row.origin) && isVersionKey(row.session);

/** Return the conversations of these rows, last used first. Each has
 *
 *   key       of its first version, which identifies it
 *   shown     the row of the version that was used last, or is open; rows of all versions, by age
 *   name      to show; at; parent, the key of the conversation that started it as a subagent, if any
 *   pinned, archived, running, question, unread */
export function conversationsOf(rows, { open = "", unread = () => false } = {}) {
  const byKey = new Map(rows.map((row) => [row.session, row]));
  const byRoot = new Map();
  for (const row of rows) {
    const root = rootOf(row, byKey);
    if (byRoot.has(root)) byRoot.get(root).push(row);
    else byRoot.set(root, [row]);
  }
  const found = Array.from(byRoot, ([key, versions]) => conversationOf(key, versions, open, unread));
  return found.sort((one, other) => (one.at < other.at ? 1 : one.at > other.at ? -1 : 0));
}

/** The time of the newest message or answer: a title or a pin moves nothing. */
export const usedAt = (row) => row.used ?? row.at;

function conversationOf(key, rows, open, unread) {
  let newest = rows[0];
  for (const row of rows) if (usedAt(row) > usedAt(newest)) newest = row;
  const shown = rows.find((row) => row.session === open) ?? newest;
  if (rows.length > 1) rows.sort((one, other) => (one.created < other.created ? -1 : 1));
  return {
    key, shown, rows, at: usedAt(newest),
    name: nameOf(shown, rows),
    pinned: rows.some((row) => row.pinned),
    archived: rows.every((row) => row.archived),
    running: rows.some((row) => row.running),
    question: rows.some((row) => row.question),
    unread: rows.some(unread),
    fork: Boolean(shown.origin) && !isVersion(shown),
    parent: rows.find((row) => row.parent)?.parent ?? "",
  };
}

function rootOf(row, byKey) {
  const passed = new Set();
  let at = row;
  while (isVersion(at) && !passed.has(at)) {
    passed.add(at);
    const parent = byKey.get(at.origin.session);
    if (!parent) return at.origin.session_id; // it was deleted
    at = parent;
  }
  return at.session;
}

function nameOf(shown, rows) {
  return shown.title || rows.find((row) => row.title)?.title || beginningOf(shown) || nameOfKey(shown.session);
}

/** The beginning of the first message, where the key says nothing: somebody may have chosen it as a name. */
function beginningOf({ session, beginning, channel, parent }) {
  const whole = withoutVersions(session);
  return whole === MAIN || channel || parent || DATED.test(whole) ? beginning : "";
}

/** Return a name made of a key: "plan-the-garden-m7x2-fork-2" becomes "Plan the garden". */
export function nameOfKey(key) {
  const whole = withoutVersions(key);
  const words = whole.replace(MADE, "");
  if (words === whole) return whole;
  if (DATED.test(whole)) return t("New conversation");
  return words[0].toUpperCase() + words.slice(1).replaceAll("-", " ");
}

function withoutVersions(key) {
  let whole = key;
  while (isVersionKey(whole)) whole = whole.replace(VERSION, "");
  return whole;
}

/** Return a map from the key of each conversation to those of its subagents, oldest first. Those whose parent is not among them
 * have none. */
export function subagentsOf(conversations) {
  const byKey = new Map(conversations.flatMap((conversation) => conversation.rows.map((row) => [row.session, conversation.key])));
  const found = new Map();
  for (const conversation of conversations) {
    const parent = byKey.get(conversation.parent);
    if (parent === undefined || parent === conversation.key) continue;
    if (found.has(parent)) found.get(parent).unshift(conversation);
    else found.set(parent, [conversation]);
  }
  return found;
}

/** Return `[{name, conversations}]`: pinned ones, then by date. Archived ones are left out. */
export function groupsOf(conversations, now = new Date()) {
  const groups = new Map();
  const today = new Date(now.getFullYear(), now.getMonth(), now.getDate());
  for (const conversation of conversations) {
    if (conversation.archived) continue;
    const name = conversation.pinned ? t("Pinned") : dateOf(new Date(conversation.at), today);
    if (groups.has(name)) groups.get(name).push(conversation);
    else groups.set(name, [conversation]);
  }
  const pinned = groups.get(t("Pinned"));
  groups.delete(t("Pinned"));
  const dated = Array.from(groups, ([name, members]) => ({ name, conversations: members }));
  return pinned ? [{ name: t("Pinned"), conversations: pinned }, ...dated] : dated;
}

function dateOf(then, today) {
  const days = Math.round((today - new Date(then.getFullYear(), then.getMonth(), then.getDate())) / DAY); // some have 23 hours
  if (days <= 0) return t("Today");
  if (days === 1) return t("Yesterday");
  if (days <= 7) return t("Previous 7 days");
  if (days <= 30) return t("Previous 30 days");
  const name = (then.getFullYear() === today.getFullYear() ? month : monthOfYear).format(then);
  return name[0].toUpperCase() + name.slice(1);
}
