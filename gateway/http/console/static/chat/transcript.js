// The transcript: reduces a session's events to entries, in the order in which they are shown.
//
// An entry is `{id, session, kind, seq, at, place, …}`, changed in place by later events; `place` is the sort key. Kinds:
//   person     text, attachments, state (waiting, taken), command (whether it is one)
//   assistant  turn, reply, text, reasoning, reasoningMillis, model, calls (see tool_calls.js), usage, live (still being
//              written), stop, took (milliseconds since the turn began), spent (usages of the turn so far, by model), cut (it
//              reached its maximum length, and no other turn has begun since)
//   answer     of a command: text, failed, query (of a search in the memory)
//   question   about a tool call: approval, tool, text, detail, why, choices, expires, pattern, state (open, answered, ended),
//              answer (who, how, when)
//   aside      a message of the gateway: text, tone (plain, fault, mark), detail (unfolds; Markdown), turn and retry (the turn
//              failed, and no other has begun since)

import { t, tn } from "../language.js";
import { isVersionKey } from "../sidebar/conversations.js";

const OUTPUT = 64 * 1024; // characters of a running tool's output that are kept; its event has all of it
const MISSING = "\n[…]\n"; // in place of pieces that were dropped

const ENDINGS = {
  cancelled: t("Stopped."),
  failed: t("The turn failed for an unknown reason."),
  abandoned: t("The turn was abandoned."),
};

export class Transcript {
  constructor(session) {
    this.session = session;
    this.events = [];
    this.outputs = new Map(); // by call, while it runs: its output so far, `{text, end}` with the end in code points
    this.reset();
  }

  reset() {
    this.entries = new Map();
    this.replies = new Map(); // by seq of model_replied or reply_imported
    this.questions = new Map(); // by approval
    this.turn = null; // the running turn
    this.live = null; // the id of the entry that is being written
    this.cut = null; // the entry of the last answer, if it reached its maximum length
    this.model = this.asked = ""; // the `provider:model` of the running turn, and of the last request
    this.usages = {}; // of the running turn, by model
    this.began = NaN; // the time at which it began, if that is loaded
    this.failed = null; // the entry about the failure of the last turn, if it failed
    this.automatic = false; // true if the running compaction was not requested; false too if its beginning is not loaded
    this.succeeds = null;
    this.closed = false;
    this.handed = new Set(); // turns that took messages of other conversations, which nobody can repeat
    this.starts = new Map(); // by turn: the seq of its first event
    this.ends = new Map(); // by turn: the seq of its last event
  }

  get first() {
    return this.events[0]?.seq ?? Infinity;
  }

  get last() {
    return this.events.at(-1)?.seq ?? 0;
  }

  /** Apply the next event; return false if it was applied before. */
  add(event) {
    if (event.seq <= this.last) return false;
    this.events.push(event);
    this.apply(event);
    return true;
  }

  /** Add a page of earlier events. All events are reduced again, because one may change earlier entries. */
  prepend(events) {
    const first = this.first;
    const live = this.entries.get(this.live);
    this.events = [...events.filter((event) => event.seq < first), ...this.events];
    this.reset();
    for (const event of this.events) this.apply(event);
    if (live) this.entries.set((this.live = live.id), live);
  }

  /** Return the entries in the order in which they are shown; queued messages are last. */
  sorted() {
    return [...this.entries.values()].sort((one, other) => one.place - other.place);
  }

  /** Return the first turn that began after an event; null if there is none, or the event is not loaded. */
  turnAfter(seq) {
    if (this.first > seq + 1) return null;
    for (const [turn, start] of this.starts) if (start > seq) return turn;
    return null;
  }

  /** Return where a fork before an event should part: a fork that has not gone on yet has nothing of its own. */
  partsAt(seq) {
    const own = this.events.findLast((event) => event.kind === "session_forked" && event.session === this.session);
    const goesOn = ({ kind, seq: each }) => each > own.seq && each <= seq && (kind === "turn_started" || kind === "command_answered");
    return own && !this.events.some(goesOn) ? Math.min(seq, own.parent_seq) : seq;
  }

  /** Return a transcript of another session that begins with the same events up to `seq`. */
  beginning(session, seq) {
    const made = new Transcript(session);
    made.prepend(this.events.filter((event) => event.seq <= seq));
    return made;
  }

  /** Return the messages that a turn took, in order. */
  takenBy(turn) {
    return this.sorted().filter((entry) => entry.kind === "person" && entry.turn === turn && !entry.command);
  }

  /** Return the seq before the turn that took a message, and the messages of the turn. Throws if it is not loaded. */
  before(entry) {
    if (entry.turn === undefined) return { seq: entry.seq - 1, messages: [entry] };
    if (!this.starts.has(entry.turn)) throw new Error(t("The beginning of this turn is not loaded yet. Scroll up to it first."));
    return { seq: this.starts.get(entry.turn) - 1, messages: this.takenBy(entry.turn) };
  }

  /** Add a piece of a streaming answer, or of its `reasoning`. */
  piece({ type, turn, reply, offset, text }) {
    const id = this.replyId(turn, reply);
    let entry = this.entries.get(id);
    if (entry && !entry.live) return; // confirmed before
    this.forgetLive(id);
    if (!entry) {
      entry = { id, session: this.session, kind: "assistant", seq: null, place: this.last + 0.5, turn, reply, text: "", reasoning: "", points: { text: 0, reasoning: 0 }, calls: [], live: true, at: "" };
      this.entries.set((this.live = id), entry);
    }
    const field = type === "reasoning" ? "reasoning" : "text";
    if (field === "reasoning") entry.reasoningSince ??= Date.now();
    else if (entry.reasoningSince) entry.reasoningMillis ??= Date.now() - entry.reasoningSince;
    const points = countOf(text);
    if (offset === entry.points[field]) {
      entry[field] += text;
      entry.points[field] += points;
    } else if (offset < entry.points[field]) {
      entry[field] = [...entry[field]].slice(0, offset).join("") + text;
      entry.points[field] = offset + points;
    } // else pieces were dropped: the event has the whole text
  }

  /** Add a piece of a running tool's output; return its entry, null if the call does not run. */
  output({ call: { of, index }, offset, text }) {
    const entry = this.replies.get(of);
    const call = entry?.calls[index];
    if (call?.state !== "running") return null;
    const known = this.outputs.get(`${of}.${index}`);
    const [points, overlap] = [[...text], Math.max(0, known.end - offset)]; // after a reconnect pieces may be repeated
    if (overlap >= points.length) return null;
    const missing = offset > known.end ? MISSING : "";
    known.text = (known.text + missing + points.slice(overlap).join("")).slice(-OUTPUT);
    known.end = offset + points.length;
    return entry;
  }

  forgetLive(but = "") {
    if (this.live === null || this.live === but) return;
    this.entries.delete(this.live);
    this.live = null;
  }

  replyId(turn, reply) {
    return `${this.session}:${turn}.${reply}`;
  }

  apply(event) {
    REDUCERS[event.kind]?.call(this, event);
  }

  put(event, kind, fields) {
    const entry = { id: `${this.session}:${event.seq}`, session: this.session, kind, seq: event.seq, at: event.at, place: event.seq, ...fields };
    this.entries.set(entry.id, entry);
    return entry;
  }

  aside(event, text, { tone = "plain", detail = "", ...others } = {}) {
    return text ? this.put(event, "aside", { text, tone, detail, ...others }) : null;
  }

  /** The last turn can no longer be retried or continued. */
  leaveLast() {
    if (this.failed) this.failed.retry = false;
    if (this.cut) this.cut.cut = false;
    this.failed = this.cut = null;
  }

  /** Remove the waiting messages that were deleted or replaced on their channel. */
  withdraw(chosen) {
    for (const [id, entry] of this.entries) if (entry.kind === "person" && entry.state === "waiting" && chosen(entry)) this.entries.delete(id);
  }

  take(event) {
    event.takes.forEach((seq, index) => {
      const entry = this.entries.get(`${this.session}:${seq}`);
      if (entry) Object.assign(entry, { state: "taken", place: event.seq - 0.9 + index / 1000, turn: event.turn });
      if (entry?.kind === "handed") this.handed.add(event.turn);
    });
  }

  call({ of, index }, change) {
    const call = this.replies.get(of)?.calls[index];
    if (call) Object.assign(call, change);
  }
}

/** Return a text that differs once an entry must be drawn again. */
export function stampOf(entry) {
  const calls = entry.calls?.map((call) => call.state).join() ?? "";
  return [entry.kind, entry.state, entry.live, entry.text.length, entry.reasoning?.length, entry.cut, calls, entry.fault, entry.retry, entry.versions?.at, entry.versions?.of, entry.text.slice(-20)].join("|");
}

const REDUCERS = {
  session_opened(event) {
    this.succeeds = event.succeeds ?? null;
    if (event.succeeds) this.aside(event, "A new session", { tone: "mark" });
    if (event.agent) this.aside(event, t("The agent {agent} answers here", { agent: event.agent }), { tone: "mark" });
    this.agent = event.agent ?? "main";
    if (event.imported) this.aside(event, t("Imported from {program}", { program: event.imported.program }), { tone: "mark" });
  },
  session_forked(event) {
    this.succeeds = null;
    for (const seq of event.left ?? []) this.entries.delete(`${this.session}:${seq}`); // the parent session answers them
    if (!isVersionKey(event.key)) this.aside(event, t("Forked here"), { tone: "mark" });
  },
  session_closed() {
    this.closed = true;
    this.leaveLast();
  },
  message_received(event) {
    const command = /^\/[a-z]/i.test(event.text) && !event.attachments?.length;
    const fields = { text: event.text, attachments: event.attachments ?? [], state: command ? "taken" : "waiting", command };
    const handed = handedBy(event);
    if (handed) return void Object.assign(this.put(event, "handed", { ...fields, ...handed }), { place: 1e12 + event.seq });
    if (event.edits) this.withdraw((entry) => event.edits === entry.client || event.edits === entry.edits);
    const entry = this.put(event, "person", { ...fields, client: event.id, edits: event.edits });
    if (!command) entry.place = 1e12 + event.seq; // last, until a turn takes it
  },
  message_imported(event) {
    this.put(event, "person", { text: event.text, attachments: event.attachments ?? [], state: "taken", command: false, turn: null, imported: true });
  },
  reply_imported(event) {
    const calls = (event.calls ?? []).map((call) => ({ ...call, state: "asked", output: "" }));
    const fields = { text: event.text, model: event.model, calls, reasoning: event.reasoning ?? "", reasoningMillis: 0, live: false };
    this.replies.set(event.seq, this.put(event, "assistant", { ...fields, turn: null, imported: true }));
  },
  message_withdrawn(event) {
    this.withdraw((entry) => entry.seq === event.of);
  },
  turn_started(event) {
    this.turn = event.turn;
    this.leaveLast();
    this.asked = this.model = `${event.provider}:${event.model}`;
    this.usages = {};
    this.began = Date.parse(event.at);
    this.starts.set(event.turn, event.seq);
    this.take(event);
  },
  turn_joined(event) {
    this.take(event);
  },
  turn_resumed(event) {
    this.turn = event.turn;
    this.forgetLive();
    this.aside(event, t("The gateway was restarted and resumes this turn."));
  },
  turn_interrupted() {
    this.forgetLive();
  },
  memory_recalled(event) {
    if (!event.hits?.length) return;
    const places = event.hits.map((hit) => `${hit.path}#L${hit.lines[0]}-L${hit.lines[1]}`);
    const detail = event.hits.map((hit, at) => `${quoted(places[at])}\n\n${fenced(hit.text)}`).join("\n\n");
    this.aside(event, tn(event.hits.length, "Recalled {count} passage", "Recalled {count} passages"), { detail, places, query: event.query });
  },
  request_sent(event) {
    this.asked = event.model ?? this.model;
  },
  model_replied(event) {
    this.forgetLive(this.replyId(event.turn, event.reply));
    const calls = (event.calls ?? []).map((call) => ({ ...call, state: "asked", output: "" }));
    const id = this.replyId(event.turn, event.reply);
    if (event.usage) this.usages[this.asked] = sum(this.usages[this.asked], event.usage);
    const fields = { turn: event.turn, reply: event.reply, text: event.text, model: event.model, calls, usage: event.usage };
    Object.assign(fields, { reasoning: event.reasoning ?? "", reasoningMillis: event.reasoning_millis ?? 0 });
    Object.assign(fields, { took: Date.parse(event.at) - this.began, spent: { ...this.usages }, cut: event.stop === "length", handed: this.handed.has(event.turn) });
    const entry = { id, session: this.session, kind: "assistant", seq: event.seq, at: event.at, place: event.seq, live: false, stop: event.stop, ...fields };
    this.entries.set(id, entry);
    if (entry.cut) this.cut = entry;
    this.live = null;
    this.replies.set(event.seq, entry);
    if (event.notice) this.aside(event, event.notice, { tone: "mark" });
  },
  tool_called(event) {
    const name = `${event.call.of}.${event.call.index}`;
    if (!this.outputs.has(name)) this.outputs.set(name, { text: "", end: 0 });
    this.call(event.call, { state: "running", since: Date.parse(event.at), live: this.outputs.get(name) });
  },
  tool_returned(event) {
    const { call, outcome: state, output, cut_from: cutFrom, whole, millis, exit_code: exitCode, diff, attachments } = event;
    this.outputs.delete(`${call.of}.${call.index}`);
    this.call(call, { state, output, cutFrom, whole, millis, exitCode, diff, attachments, live: null });
  },
  approval_asked(event) {
    const { approval, tool, what, detail, why, choices, expires, pattern } = event;
    const entry = this.put(event, "question", { approval, tool, text: what, detail, why, choices, expires, pattern, state: "open" });
    this.questions.set(approval, Object.assign(entry, { turn: event.turn }));
  },
  approval_given(event) {
    const entry = this.questions.get(event.approval);
    if (entry?.state === "open") Object.assign(entry, { state: "answered", answer: event });
  },
  turn_ended(event) {
    for (const entry of this.questions.values()) if (entry.state === "open" && entry.turn === event.turn) entry.state = "ended";
    this.turn = null;
    this.ends.set(event.turn, event.seq);
    this.forgetLive();
    if (event.dropped) for (const [id, entry] of this.entries) if (entry.turn === event.turn) this.entries.delete(id);
    const sentence = event.error?.sentence ?? ENDINGS[event.outcome];
    if (event.outcome === "cancelled") this.aside(event, sentence);
    else if (sentence) this.failed = this.aside(event, sentence, { tone: "fault", turn: event.turn, retry: !this.handed.has(event.turn) });
  },
  command_answered(event) {
    const asked = this.entries.get(`${this.session}:${event.answers}`)?.text ?? "";
    this.put(event, "answer", { text: event.answer, failed: event.failed, query: SEARCH.exec(asked)?.[1] });
  },
  child_started(event) {
    this.aside(event, t("The subagent {child} works on a task", { child: event.child }), { tone: "mark", detail: event.task, child: event.child });
  },
  child_ended(event) {
    const { child, outcome } = event;
    if (outcome === "failed") this.aside(event, t("The subagent {child} failed", { child }), { tone: "fault", child });
    else if (outcome === "replied") this.aside(event, t("The subagent {child} has ended", { child }), { tone: "mark", child });
    else this.aside(event, t("The subagent {child} was stopped", { child }), { tone: "mark", child });
  },
  compaction_began(event) {
    this.automatic = event.trigger !== "command" && event.trigger !== "new";
  },
  context_compacted(event) {
    const what = event.messages ? tn(event.messages, "{count} message summarised", "{count} messages summarised") : t("Earlier messages were summarised");
    const text = this.automatic ? t("🧹 Auto-compaction complete: {what}", { what }) : what;
    this.aside(event, text, { tone: "mark", detail: event.summary });
  },
  memory_flushed(event) {
    if (event.outcome === "written") this.aside(event, t("Noted in {path}", { path: event.path }), { detail: event.text });
    if (event.outcome === "failed") this.aside(event, event.reason, { tone: "fault" });
  },
  compaction_abandoned(event) {
    if (event.failed) this.aside(event, event.reason, { tone: "fault" });
  },
  attachments_withheld(event) {
    this.aside(event, event.files.map((file) => file.sentence).join(" "), { tone: "fault" });
  },
  plugin_failed(event) {
    this.aside(event, event.sentence, { tone: "fault" });
  },
};

const SEARCH = /^\/memory\s+([^]+)/i; // the command, whose answer has citations
const MARK = /^\[([0-9a-f]{8})\] [^\n]{0,200}\n/m; // the line before the result of a subagent

/** Return the `side` and the `key` of the conversation that sent a message, and its text: a subagent its result, the conversation
 * that has started a subagent the task; null if a person sent it. The heartbeat has no conversation. */
function handedBy({ client = "", text }) {
  if (client === "heartbeat") return { side: "heartbeat", key: "" };
  const side = ["child", "parent"].find((each) => client.startsWith(`${each}:`));
  if (!side) return null;
  const key = client.slice(side.length + 1);
  const begin = side === "child" ? MARK.exec(text) : null;
  if (!begin) return { side, key, text };
  const result = text.slice(begin.index + begin[0].length);
  const end = `\n[${begin[1]}] end`;
  return { side, key, text: result.endsWith(end) ? result.slice(0, -end.length) : result };
}

function sum(one, other) {
  const { input = 0, output = 0, cached = 0 } = one ?? {};
  return { input: input + other.input, output: output + other.output, cached: cached + other.cached };
}

function countOf(text) {
  let count = 0;
  for (const _ of text) count++;
  return count;
}

function quoted(text) {
  return `\`${text.replaceAll("`", "'")}\``;
}

function fenced(text) {
  const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map((match) => match[0].length));
  const fence = "`".repeat(longest + 1);
  return `${fence}\n${text}\n${fence}`;
}
