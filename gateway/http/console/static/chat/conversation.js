// Follows a conversation: all sessions of one key, without gaps or repetitions, even if the connection is lost.
//
// A message stays in this browser, with an id of its own, until the gateway has accepted it. So it can be sent again after
// a lost connection or a reload, and is still answered only once.
import { Settings } from "../composer/settings.js";
import { wordsFound } from "../matches.js";
import { Transcript } from "./transcript.js";
import { t } from "../language.js";

const PAGE = 100;
const OLDER = 500;
const SAID = ["person", "assistant"]; // kinds of entries
const LOOK = 2000; // milliseconds between checks for a session that does not exist yet
const AGAIN = 1500; // milliseconds before another attempt if the gateway does not say when
const TOO_LONG = t("This message is too long. Shorten it, or attach it as a file.");

/** Dispatches `change` (entries were added or changed), `piece` (the `entry` that is being written grew by a `text`),
 * `output` (a running tool of this entry has written more), `earlier` (an earlier page was added), `settings`, `refused` (a
 * message that was not sent, with the reason as `sentence`) and `fault` (a sentence). */
export class Conversation extends EventTarget {
  /** `transcript` is the beginning of its session, if it is known. */
  constructor(app, key, transcript = null) {
    super();
    this.app = app;
    this.key = key;
    this.transcripts = transcript ? [transcript] : []; // by session, oldest first
    this.more = transcript !== null && transcript.first > 1;
    this.title = "";
    this.absent = false; // true if the session does not exist
    this.unsent = new Unsent(key);
    this.choices = new Settings(app, (name, value) => this.configure(name, value)); // model, effort and so on
    this.loading = null;
    this.paused = null; // while the provider accepts no request: turn, until (milliseconds), reason
    const mine = (act) => (frame) => frame.session === key && act(frame);
    this.ends = [
      app.socket.on("welcome", () => this.resume()),
      app.socket.on("event", mine((frame) => this.take(frame))),
      app.socket.on("delta", mine((frame) => this.piece(frame))),
      app.socket.on("reasoning", mine((frame) => this.piece(frame))),
      app.socket.on("output", mine((frame) => this.output(frame))),
      app.socket.on("paused", mine((frame) => this.pause(frame))),
      app.socket.on("settings", mine((frame) => this.settings(frame))),
      app.socket.on("accepted", mine((frame) => this.accepted(frame))),
      app.socket.on("error", (frame) => this.refused(frame)),
    ];
    if (app.socket.state === "open") this.resume();
  }

  close() {
    clearTimeout(this.timer);
    clearTimeout(this.looking);
    for (const end of this.ends) end();
    if (this.current) this.app.socket.say({ type: "unsubscribe", session: this.key });
  }

  get current() {
    return this.transcripts.at(-1);
  }

  /** True while a turn runs. */
  get running() {
    return this.transcripts.some((transcript) => transcript.turn !== null);
  }

  /** The open questions about tool calls, oldest first. */
  get questions() {
    return this.transcripts.flatMap((transcript) => [...transcript.questions.values()]).filter(({ state }) => state === "open");
  }

  /** Return all entries in order; messages that are being sent are last. */
  entries() {
    return [...this.transcripts.flatMap((transcript) => transcript.sorted()), ...this.unsent.entries()];
  }

  /** Return the entry of an event, or the last entry before it, or of the events up to `last` the first message with the most of
   * these words; undefined while it is not loaded. */
  entryAt({ session, seq, last = seq }, words = "") {
    const transcript = this.transcripts.find((each) => each.session === session);
    if (!transcript || transcript.first > seq) return undefined;
    const entries = transcript.sorted().filter((entry) => entry.seq !== null && entry.seq <= last);
    const scored = entries.filter((entry) => entry.seq >= seq && SAID.includes(entry.kind) && entry.text)
      .map((entry) => ({ entry, found: wordsFound(entry.text, words) }));
    if (scored.length && last > seq) return scored.reduce((best, each) => (each.found > best.found ? each : best)).entry;
    return entries.findLast((entry) => entry.seq <= seq);
  }

  // --- reading ---------------------------------------------------------------------------------------------------------

  /** After each welcome: load missed events or, the first time, the newest page; then send the unaccepted messages. */
  async resume() {
    clearTimeout(this.looking);
    try {
      if (!this.current) await this.load();
      this.absent = false;
      if (this.current) await this.follow();
    } catch (error) {
      if (error.code === "closed") return;
      this.absent = error.code === "unknown_session" && !this.current;
      if (!this.absent) this.emit("fault", error.message);
      if (error.code === "storage_failed") this.resumeLater();
      else this.looking = setTimeout(() => this.current || this.look(), LOOK); // another client may create it
    }
    this.emit("change");
    for (const message of this.unsent.messages) this.post(message);
  }

  /** Try again later, because the log could not be read. */
  resumeLater() {
    clearTimeout(this.looking);
    this.looking = setTimeout(() => this.resume(), AGAIN);
  }

  /** Check whether the session exists by now. */
  look() {
    if (document.visibilityState === "visible") this.resume();
    else this.looking = setTimeout(() => this.look(), LOOK);
  }

  async load() {
    const { socket } = this.app;
    const page = await socket.ask({ type: "history", session: this.key, limit: PAGE });
    if (this.current) return; // an event of a message that was sent meanwhile came first
    for (const event of page.events) this.of(page.session_id).add(event);
    this.more = this.hasEarlier(page.more);
    this.emit("earlier");
  }

  /** Follow from the last event of the oldest unfinished session. */
  async follow() {
    const from = this.transcripts.find((transcript) => !transcript.closed && transcript.turn !== null) ?? this.current;
    await this.app.socket.ask({ type: "subscribe", session: this.key, session_id: from.session, after: from.last });
  }

  /** Load the previous page. */
  earlier() {
    this.loading ??= this.loadEarlier().finally(() => (this.loading = null));
    return this.loading;
  }

  async loadEarlier() {
    const oldest = this.transcripts[0];
    if (!oldest || !this.more) return;
    const within = oldest.first > 1;
    const session = within ? oldest.session : oldest.succeeds.session;
    const frame = { type: "history", session: this.key, session_id: session, limit: OLDER };
    const page = await this.app.socket.ask(within ? { ...frame, before: oldest.first } : frame);
    if (!within) this.transcripts.unshift(new Transcript(session));
    this.transcripts[0].prepend(page.events);
    this.more = this.hasEarlier(page.more);
    this.emit("earlier");
  }

  hasEarlier(more) {
    return more || Boolean(this.transcripts[0]?.first === 1 && this.transcripts[0].succeeds);
  }

  /** Return the transcript of a session; one for a new session is added at the end. */
  of(session) {
    let found = this.transcripts.find((transcript) => transcript.session === session);
    if (!found) this.transcripts.push((found = new Transcript(session)));
    return found;
  }

  take({ session_id, event }) {
    const transcript = this.of(session_id);
    if (!transcript.add(event)) return;
    if (event.kind === "journal_erased") return location.reload(); // the page may show what is erased
    if (event.turn === this.paused?.turn) this.paused = null;
    if (event.kind === "message_received") this.unsent.remove(event.id);
    this.emit("change", event);
  }

  pause({ turn, seconds, reason }) {
    this.paused = { turn, until: Date.now() + 1000 * seconds, reason };
    this.emit("change");
  }

  piece(frame) {
    this.paused = null;
    const transcript = this.of(frame.session_id);
    const known = transcript.entries.size;
    transcript.piece(frame);
    const entry = transcript.entries.get(transcript.replyId(frame.turn, frame.reply));
    if (!entry?.live) return;
    const text = frame.type === "delta" ? frame.text : "";
    if (known === transcript.entries.size) this.emit("piece", { entry, text });
    else this.emit("change", entry);
  }

  output(frame) {
    const entry = this.of(frame.session_id).output(frame);
    if (entry) this.emit("output", entry);
  }

  settings(frame) {
    this.title = frame.title;
    this.choices.take(frame);
    this.emit("settings");
  }

  /** Continue a session from one of its events in another version, or in another conversation if a key is given. Resolves to
   * the `key` and the beginning of its `transcript`. Throws FrameError. */
  async fork(session, upto, key = undefined) {
    const made = await this.app.socket.ask({ type: "fork", session: this.key, session_id: session, upto, key });
    return { key: made.session, transcript: this.of(session).beginning(made.session_id, made.parent_seq) };
  }

  // --- writing ---------------------------------------------------------------------------------------------------------

  /** Send a message; it is kept until the gateway has accepted it. Throws an Error with a sentence if nothing was sent. */
  send(text, attachments = []) {
    const message = this.unsent.add(this.app.socket, text, attachments);
    this.emit("change");
    this.post(message);
  }

  /** Change a setting of the session, which is created if it does not exist. Throws FrameError. */
  configure(name, value) {
    return this.app.socket.ask({ type: "configure", session: this.key, name, value });
  }

  /** Answer a question about a tool call. Throws FrameError. */
  approve(approval, decision, scope) {
    return this.app.socket.ask({ type: "approve", session: this.key, approval, decision, scope });
  }

  /** Stop the running turn. */
  stop() {
    this.app.socket.say({ type: "cancel", session: this.key });
  }

  post(message) {
    const frame = frameOf(this.key, message);
    const { agent, ...others } = message.settings ?? {}; // the agent first: the others begin the session, too
    for (const [name, value] of Object.entries(agent ? { agent, ...others } : others)) {
      this.configure(name, value).catch((error) => error.code !== "closed" && this.emit("fault", error.message));
    }
    if (this.app.socket.takes(frame)) this.app.socket.say(frame);
    else this.giveBack(message, TOO_LONG); // stored by an older page that did not check
  }

  accepted({ id }) {
    // Its event follows, unless a turn took the message long ago.
    if (this.unsent.remove(id)) this.emit("change");
  }

  refused(frame) {
    const message = this.unsent.find(frame.id);
    if (frame.id === undefined && frame.session === this.key) this.resumeLater(); // the subscription ended
    if (!message) return;
    if (frame.code === "busy") {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.resend(), (frame.retry_after ?? 0) * 1000 || AGAIN);
    } else this.giveBack(message, frame.code === "too_large" ? TOO_LONG : frame.message);
    this.emit("change");
  }

  /** Return a refused message to the composer. */
  giveBack(message, sentence) {
    this.unsent.remove(message.id);
    this.emit("refused", { ...message, sentence });
  }

  resend() {
    for (const message of this.unsent.messages) this.post(message);
  }

  emit(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}

function frameOf(key, { id, text, attachments }) {
  const sent = attachments.map(({ sha256, name }) => ({ sha256, name: name ?? "" }));
  return { type: "send", id, session: key, text, attachments: sent };
}

/** The messages being sent to a key, in this browser's storage. */
export class Unsent {
  constructor(key) {
    this.key = key;
    this.place = `exuvia.unsent.${key}`;
    this.messages = read(this.place);
  }

  /** Store a message; `settings` are those that a new session begins with. Throws an Error with a sentence if it is too long or
   * the storage is full. */
  add(socket, text, attachments, settings = {}) {
    const message = { id: newId(), text, attachments, settings, at: new Date().toISOString() };
    if (!socket.takes(frameOf(this.key, message))) throw new Error(TOO_LONG);
    this.messages.push(message);
    try {
      this.keep();
    } catch {
      this.messages.pop();
      throw new Error(t("The browser's storage is full. Wait until other messages are sent, or shorten this one."));
    }
    return message;
  }

  find(id) {
    return this.messages.find((message) => message.id === id);
  }

  remove(id) {
    const known = this.messages.length;
    this.messages = this.messages.filter((message) => message.id !== id);
    if (known !== this.messages.length) this.keep();
    return known !== this.messages.length;
  }

  entries() {
    return this.messages.map(({ id, text, attachments, at }) => ({ id: `unsent:${id}`, kind: "person", seq: null, at, text, attachments, state: "sending" }));
  }

  keep() {
    if (this.messages.length) localStorage.setItem(this.place, JSON.stringify(this.messages));
    else localStorage.removeItem(this.place);
  }
}

function read(place) {
  try {
    return JSON.parse(localStorage.getItem(place)) ?? [];
  } catch {
    return [];
  }
}

/** A unique id; `randomUUID` exists on secure origins only, and a phone may use plain HTTP. */
function newId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
