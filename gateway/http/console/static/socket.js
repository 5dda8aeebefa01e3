// The websocket: one connection for all pages, which reconnects by itself. The frames are those of docs/websocket.md.
import { t } from "./language.js";

const FIRST_PAUSE = 400;
const LONGEST_PAUSE = 10_000;
const QUIET = 25_000; // milliseconds without a frame before a ping is sent
const PONG_TIMEOUT = 10_000; // milliseconds for the pong
const UNAUTHORIZED = 4401;

/** An `error` frame of the gateway, or a lost connection (`code` is "closed"). */
export class FrameError extends Error {
  constructor(frame) {
    super(frame.message);
    this.code = frame.code;
    this.frame = frame;
  }
}

/** Dispatches each frame as an event of its type, with the frame as `detail`; beside these `state` (`detail` is "open",
 * "connecting" or "closed") and `expelled`. */
export class Socket extends EventTarget {
  constructor(url) {
    super();
    this.url = url;
    this.state = "closed";
    this.welcome = null;
    this.waiting = new Map();
    this.numbers = 0;
    this.pause = FIRST_PAUSE;
    this.wanted = false;
    const wake = () => document.visibilityState === "visible" && this.recheck();
    document.addEventListener("visibilitychange", wake);
    window.addEventListener("online", wake);
  }

  /** Listen to frames of a type; returns a function that stops. */
  on(type, listener) {
    const heard = (event) => listener(event.detail);
    this.addEventListener(type, heard);
    return () => this.removeEventListener(type, heard);
  }

  /** Resolves to the names of the agents, once the gateway has greeted this page or cannot be reached; none if there is only one. */
  async agents() {
    if (!this.welcome && this.state !== "closed") {
      await new Promise((resolve) => this.addEventListener("state", resolve, { once: true }));
    }
    return this.welcome?.agents ?? [];
  }

  /** Connect, and reconnect after every loss. */
  open() {
    this.wanted = true;
    this.connect();
  }

  /** Close the connection and do not reconnect. */
  close() {
    this.wanted = false;
    clearTimeout(this.timer);
    this.socket?.close();
    this.lost();
  }

  /** Send a frame; false if not connected. */
  say(frame) {
    if (this.state !== "open") return false;
    this.socket.send(JSON.stringify(frame));
    return true;
  }

  /** Return true if a frame is within the gateway's limit. A much longer one would close the connection. */
  takes(frame) {
    const text = JSON.stringify(frame);
    const limit = this.welcome?.limits.frame ?? Infinity;
    return 3 * text.length <= limit || new TextEncoder().encode(text).length <= limit;
  }

  /** Send a frame with a new id and wait for its answer. Throws FrameError. */
  ask(frame) {
    const id = `q${++this.numbers}`;
    return new Promise((resolve, reject) => {
      if (!this.say({ ...frame, id })) reject(new FrameError({ code: "closed", message: t("Not connected.") }));
      else this.waiting.set(id, { resolve, reject });
    });
  }

  connect() {
    clearTimeout(this.timer);
    if (!this.wanted || this.socket) return;
    this.turn("connecting");
    const socket = (this.socket = new WebSocket(this.url));
    socket.onopen = () => socket.send(JSON.stringify({ type: "hello", protocol: 1, client: "console" }));
    socket.onmessage = (message) => this.socket === socket && this.take(JSON.parse(message.data));
    socket.onclose = (event) => this.socket === socket && this.ended(event.code);
    this.expectFrame(PONG_TIMEOUT);
  }

  /** The page is visible or online again: reconnect at once, or check that the connection still works. */
  recheck() {
    if (this.wanted && !this.socket) this.connect();
    else if (this.state === "open") this.probe();
  }

  take(frame) {
    this.expectFrame(QUIET);
    if (frame.type === "welcome") {
      if (this.state === "open") return; // the cookie got its `welcome` before; this one answers our `hello`
      this.greeted(frame);
    }
    if (frame.id !== undefined && this.waiting.has(frame.id)) this.settle(frame);
    this.dispatchEvent(new CustomEvent(frame.type, { detail: frame }));
  }

  greeted(frame) {
    this.welcome = frame;
    this.pause = FIRST_PAUSE;
    this.turn("open");
  }

  settle(frame) {
    const { resolve, reject } = this.waiting.get(frame.id);
    this.waiting.delete(frame.id);
    if (frame.type === "error") reject(new FrameError(frame));
    else resolve(frame);
  }

  ended(code) {
    this.lost();
    if (code === UNAUTHORIZED) {
      this.wanted = false;
      this.dispatchEvent(new CustomEvent("expelled"));
    } else if (this.wanted) {
      this.timer = setTimeout(() => this.connect(), this.pause * (0.75 + Math.random() / 2));
      this.pause = Math.min(2 * this.pause, LONGEST_PAUSE);
    }
  }

  lost() {
    clearTimeout(this.probing);
    this.socket = null;
    const unanswered = [...this.waiting.values()];
    this.waiting.clear();
    for (const { reject } of unanswered) reject(new FrameError({ code: "closed", message: t("The connection was lost.") }));
    this.turn("closed");
  }

  turn(state) {
    if (this.state === state) return;
    this.state = state;
    this.dispatchEvent(new CustomEvent("state", { detail: state }));
  }

  /** Send a ping unless a frame comes within this time. */
  expectFrame(milliseconds) {
    clearTimeout(this.probing);
    this.probing = setTimeout(() => this.probe(), milliseconds);
  }

  /** Send a ping, and close the connection if no pong comes. A browser does not report a dead connection, as after sleep. */
  probe() {
    clearTimeout(this.probing);
    const socket = this.socket;
    this.say({ type: "ping" });
    this.probing = setTimeout(() => {
      if (this.socket !== socket) return;
      socket.close();
      this.ended(1006);
    }, PONG_TIMEOUT);
  }
}

/** Return the event `seq` of a session of the key; undefined if there is none. Throws a FrameError. */
export async function eventAt(socket, key, session, seq) {
  const { events } = await socket.ask({ type: "history", session: key, session_id: session, before: seq + 1, limit: 1 });
  return events.at(-1);
}

const ANSWER_TIMEOUT = 200_000; // milliseconds; a command may wait for a running turn

/** Return the text of a command's answer. Throws an Error with a sentence if it failed or did not answer. */
export function runCommand(socket, session, text) {
  const id = `console-${Date.now().toString(36)}-${Math.random().toString(36).slice(2)}`;
  return new Promise((resolve, reject) => {
    let seq = null;
    const over = (end, value) => {
      listening.forEach((stop) => stop());
      clearTimeout(timer);
      end(value);
    };
    const listening = [
      socket.on("accepted", (frame) => frame.id === id && (seq = frame.seq)),
      socket.on("error", (frame) => frame.id === id && over(reject, new Error(frame.message))),
      socket.on("event", ({ session: key, event }) => {
        if (key !== session || event.kind !== "command_answered" || event.answers !== seq) return;
        if (event.failed) over(reject, new Error(event.answer));
        else over(resolve, event.answer);
      }),
    ];
    const timer = setTimeout(() => over(reject, new Error(t("The gateway did not answer in time."))), ANSWER_TIMEOUT);
    if (!socket.say({ type: "send", id, session, text })) over(reject, new Error(t("Not connected.")));
  });
}
