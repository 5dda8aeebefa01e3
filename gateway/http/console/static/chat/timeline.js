// The timeline: the entries of a conversation as elements, drawn only when they are added or change.
import { files } from "./attachments.js";
import { fill, h, readable } from "../elements.js";
import { icon } from "../icons.js";
import { LongText, isLong } from "../long_text.js";
import { Markdown } from "../answer/markdown.js";
import { brief, count, duration, exactly, when } from "../format.js";
import { t } from "../language.js";
import { costOfAll, money, prices } from "../money.js";
import { Reasoning } from "./reasoning.js";
import { markPassages } from "../answer/passages.js";
import { ToolCall } from "../answer/tool_calls.js";
import { QuestionCard } from "../answer/question.js";
import { stampOf } from "./transcript.js";
import { pager } from "./versions.js";

const NEAR = 120; // a position this many pixels above the end counts as the end
const COARSE = matchMedia("(pointer: coarse)");
const STRETCH = 100; // events in one stretch; a message and its answer have about four
const LONGEST_OPEN = 1000; // characters of a result that is shown unfolded
const AHEAD = "1500px"; // earlier pages are requested when the top is this far above the window

export class Timeline {
  /** `acts` are the actions of an entry: `edit(entry, text)`, `again(entry)`, `fork(entry)`, `retry(entry)`,
   * `goOn(entry)`, `answer(entry, decision, scope)`; `cites(entry)` returns the addresses of citations in it. */
  constructor(conversation, acts) {
    this.conversation = conversation;
    this.acts = acts;
    this.drawn = new Map();
    this.stretches = new Map(); // by name; a browser lays out and paints only those that are near
    this.top = h("div", { class: "top" });
    this.list = h("div", { class: "entries" });
    this.activity = h("p", { class: "doing", hidden: true }, h("span", { class: "pulse" }), h("span", {}));
    this.column = h("div", { class: "column" }, this.top, this.list, this.activity);
    this.newest = h("button", { class: "newest", type: "button", hidden: true, "aria-label": t("Scroll to the newest message"),
      on: { click: () => this.toEnd() } }, icon("down"));
    this.element = h("div", { class: "timeline", tabIndex: 0, role: "log", "aria-live": "off", "aria-label": t("Conversation"),
      on: { scroll: () => this.scrolled() } }, this.column);
    this.atEnd = true;
    this.watcher = new IntersectionObserver((seen) => seen.some((each) => each.isIntersecting) && this.askEarlier(), {
      root: this.element, rootMargin: `${AHEAD} 0px 0px 0px` });
    this.watcher.observe(this.top);
    this.resizes = new ResizeObserver(() => this.atEnd && this.toEnd());
    this.resizes.observe(this.column);
    this.resizes.observe(this.element);
  }

  close() {
    clearTimeout(this.ticking);
    this.watcher.disconnect();
    this.resizes.disconnect();
  }

  // --- drawing ---------------------------------------------------------------------------------------------------------

  /** Draw new and changed entries. */
  draw() {
    const entries = this.conversation.entries();
    const wanted = new Set(entries.map((entry) => entry.id));
    for (const [id, drawn] of this.drawn) {
      if (!wanted.has(id)) {
        drawn.element.remove();
        this.drawn.delete(id);
      }
    }
    this.place(entries);
    this.showActivity(entries);
    if (this.atEnd) this.toEnd();
  }

  /** Put the elements of entries into their stretches, and the stretches into the list. What is in place is not touched. */
  place(entries) {
    const left = new Map(this.stretches);
    let nextStretch = this.list.firstChild;
    let name = null;
    let stretch = null;
    let next = null;
    for (const entry of entries) {
      if (stretchOf(entry) !== name) {
        name = stretchOf(entry);
        stretch = this.stretches.get(name) ?? h("div", { class: "stretch" });
        this.stretches.set(name, stretch);
        left.delete(name);
        if (stretch === nextStretch) nextStretch = nextStretch.nextSibling;
        else this.list.insertBefore(stretch, nextStretch);
        next = stretch.firstChild;
      }
      const { element } = this.drawnOf(entry);
      if (element === next) next = next.nextSibling;
      else stretch.insertBefore(element, next);
    }
    for (const [gone, element] of left) {
      element.remove();
      this.stretches.delete(gone);
    }
  }

  /** Add an earlier page; the visible part stays in place. */
  drawEarlier() {
    const anchored = CSS.supports("overflow-anchor", "auto");
    const below = this.element.scrollHeight - this.element.scrollTop;
    if (anchored && this.element.scrollTop === 0) this.element.scrollTop = 1; // at the very top nothing is anchored
    this.draw();
    if (!anchored) this.element.scrollTop = this.element.scrollHeight - below;
    this.watcher.unobserve(this.top); // observed again, it reports whether it is still near
    this.watcher.observe(this.top);
  }

  /** Draw the entry that is being written in the next animation frame, however many pieces come until then. */
  grow(entry) {
    this.growing = entry;
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      const drawn = this.drawn.get(this.growing.id);
      if (drawn?.entry === this.growing) drawn.update(this.growing); // else the whole answer has arrived
    });
  }

  /** Show new output of an entry's running tool in the next animation frame. */
  growOutput(entry) {
    this.outputFrame ??= requestAnimationFrame(() => {
      this.outputFrame = null;
      this.drawn.get(entry.id)?.growOutput();
    });
  }

  drawnOf(entry) {
    const known = this.drawn.get(entry.id);
    const stamp = stampOf(entry);
    if (known?.stamp === stamp) return known;
    if (known) known.update(entry);
    const drawn = known ?? new (KINDS[entry.kind])(entry, this.acts);
    drawn.stamp = stamp;
    this.drawn.set(entry.id, drawn);
    return drawn;
  }

  showActivity(entries) {
    const last = entries.findLast((entry) => entry.kind === "assistant");
    const call = last?.calls.find(({ state }) => state === "running" || state === "asked");
    const asking = this.conversation.questions.length > 0; // the card says what is waited for
    this.activity.hidden = asking || !this.conversation.running || Boolean(last?.live && (last.text || last.reasoning));
    this.activity.lastChild.textContent = this.pause() || (call ? t("Using {tool}…", { tool: readable(call.tool) }) : t("Thinking…"));
  }

  /** Return the countdown of a paused provider; "" if there is none. */
  pause() {
    clearTimeout(this.ticking);
    const { paused, running } = this.conversation;
    if (!paused || !running) return "";
    const seconds = Math.max(0, Math.ceil((paused.until - Date.now()) / 1000));
    if (seconds) this.ticking = setTimeout(() => this.showActivity(this.conversation.entries()), 1000);
    const { reason } = paused;
    return seconds ? t("The provider is not accepting requests ({reason}). Trying again in {seconds} s…", { reason, seconds })
      : t("The provider is not accepting requests ({reason}). Trying again…", { reason });
  }

  // --- moving ----------------------------------------------------------------------------------------------------------

  scrolled() {
    const { scrollHeight, scrollTop, clientHeight } = this.element;
    this.atEnd = scrollHeight - scrollTop - clientHeight < NEAR;
    this.newest.hidden = this.atEnd;
  }

  toEnd() {
    this.element.scrollTop = this.element.scrollHeight;
    this.atEnd = true;
    this.newest.hidden = true;
  }

  /** Keep the entry with the pager that was used at its place in the window, and the focus on the pager. */
  hold({ seq, step, answer, top }) {
    const entry = this.conversation.entries().find((each) => each.versions && each.seq > seq && (each.kind === "assistant") === answer);
    if (!entry) return;
    const { element } = this.drawn.get(entry.id);
    this.atEnd = false;
    this.element.scrollTop += element.getBoundingClientRect().top - top;
    const buttons = [...element.querySelectorAll(".pager button:enabled")];
    if (element.contains(document.activeElement)) return;
    (buttons.find((button) => Number(button.dataset.step) === step) ?? buttons[0])?.focus({ preventScroll: true });
  }

  /** Scroll to an entry and mark it; returns its element. */
  reveal(entry) {
    const { element } = this.drawn.get(entry.id);
    this.atEnd = false;
    element.tabIndex = -1;
    element.classList.add("sought");
    element.scrollIntoView({ block: "center" });
    requestAnimationFrame(() => element.scrollIntoView({ block: "center" })); // nearby elements are laid out now
    element.focus({ preventScroll: true });
    return element;
  }

  askEarlier() {
    if (this.conversation.more) this.conversation.earlier().catch((error) => error.code === "closed" || console.error(error));
  }
}

// --- entries -----------------------------------------------------------------------------------------------------------

class Entry {
  constructor(entry, acts, kind, ...children) {
    this.acts = acts;
    this.entry = entry;
    this.element = h("article", { class: `entry ${kind}` }, ...children);
  }

  time() {
    return h("time", { class: "faint", dateTime: this.entry.at, title: this.entry.at && exactly(this.entry.at) }, this.entry.at && when(this.entry.at));
  }

  /** The button of an action; none where nothing can be done. */
  act(name, words, symbol) {
    return this.acts[name] && h("button", { class: "quiet", type: "button", title: words, "aria-label": words,
      on: { click: () => this.acts[name](this.entry) } }, icon(symbol));
  }
}

const STATES = { sending: t("Sending…"), waiting: t("Queued") };

class Person extends Entry {
  constructor(entry, acts) {
    super(entry, acts, "person");
    this.text = h("div", { class: "said" });
    if (isLong(entry.text)) new LongText(this.text).show(entry.text);
    else this.text.textContent = entry.text;
    this.below = h("div", { class: "below" });
    this.element.setAttribute("aria-label", t("You"));
    this.element.append(...files(entry.attachments), entry.text ? this.text : "", this.below);
    this.update(entry);
  }

  update(entry) {
    this.entry = entry;
    this.element.classList.toggle("command", Boolean(entry.command));
    const waits = STATES[entry.state];
    const editable = this.acts.edit && entry.seq !== null && !waits && !entry.command && !entry.imported;
    fill(this.below, waits ? h("span", { class: "waits" }, waits) : this.time(),
      entry.versions ? pager(entry.versions, this.element) : null, editable ? h("span", { class: "acts" }, this.edit()) : null);
  }

  edit() {
    const words = t("Edit");
    return h("button", { class: "quiet", type: "button", title: words, "aria-label": words, on: { click: () => this.editing() } }, icon("edit"));
  }

  /** Edit the message in its place. */
  editing() {
    const area = h("textarea", { rows: 1, value: this.entry.text, "aria-label": t("Edit the message") });
    const fit = () => {
      area.style.height = "auto";
      area.style.height = `${area.scrollHeight}px`;
    };
    const close = () => {
      form.remove();
      for (const each of [this.text, this.below]) each.hidden = false;
      this.below.querySelector(".acts button")?.focus();
    };
    const send = async () => {
      const text = area.value.trim();
      if (text === this.entry.text) close();
      else if (text || this.entry.attachments.length) await this.acts.edit(this.entry, text);
    };
    const pressed = (event) => {
      if (event.isComposing) return;
      if (event.key === "Escape") close();
      else if (event.key === "Enter" && !event.shiftKey && (!COARSE.matches || event.ctrlKey || event.metaKey)) send();
      else return;
      event.preventDefault();
      event.stopPropagation();
    };
    const form = h("form", { class: "editing", on: { submit: (event) => (event.preventDefault(), send()), keydown: pressed, input: fit } }, area,
      h("div", { class: "choices" }, h("button", { type: "button", on: { click: close } }, t("Cancel")),
        h("button", { class: "primary", type: "submit" }, t("Send"))));
    for (const each of [this.text, this.below]) each.hidden = true;
    this.below.before(form);
    fit();
    area.focus();
  }
}

class Assistant extends Entry {
  constructor(entry, acts) {
    super(entry, acts, "assistant");
    this.text = h("div", { class: "prose" });
    this.markdown = new Markdown(this.text, acts.cites?.(entry));
    this.calls = h("div", { class: "calls" });
    this.drawnCalls = [];
    this.below = h("div", { class: "below" });
    this.element.setAttribute("aria-label", t("Assistant"));
    this.cut = h("p", { class: "cut", hidden: true }, h("span", {}, t("The answer reached its maximum length.")),
      h("button", { class: "worded", type: "button", on: { click: () => this.acts.goOn(this.entry) } }, icon("down"), t("Continue")));
    this.element.append(this.text, this.calls, this.cut, this.below);
    this.update(entry);
  }

  update(entry) {
    this.entry = entry;
    this.element.classList.toggle("live", Boolean(entry.live));
    if (entry.reasoning && !this.reasoning) this.text.before((this.reasoning = new Reasoning()).element);
    this.reasoning?.update(entry);
    this.markdown.show(entry.text, !entry.live);
    this.cut.hidden = !entry.cut;
    this.drawCalls(entry.calls);
    const whole = !entry.live && !entry.calls.length;
    fill(this.below, whole ? [this.time(), h("span", { class: "faint model" }, readable(entry.model)), this.spent(),
      entry.versions ? pager(entry.versions, this.element) : null, this.actions()] : []);
  }

  /** The time and the tokens of the turn up to this answer, and their price if it is known. */
  spent() {
    const { took, spent = {} } = this.entry;
    const total = (field) => Object.values(spent).reduce((sum, usage) => sum + usage[field], 0);
    const [input, output] = [total("input"), total("output")];
    const tokens = t("{input} tokens in ({cached} cached), {output} out", { input: count(input), cached: count(total("cached")), output: count(output) });
    const parts = [Number.isFinite(took) ? duration(took, took < 1000 ? 1 : 100) : "", input + output ? t("{tokens} tokens", { tokens: brief(input + output) }) : ""];
    const element = h("span", { class: "faint spent", title: input + output ? tokens : "" }, parts.filter(Boolean).join(" · "));
    if (input + output) {
      prices(this.acts.api).then((known) => {
        const paid = costOfAll(known, spent);
        if (paid) element.textContent = [...parts, money(paid)].filter(Boolean).join(" · ");
      });
    }
    return element;
  }

  actions() {
    if (this.entry.imported || this.entry.handed) return h("span", { class: "acts" }, this.copying(), this.act("fork", t("Fork after this"), "fork"));
    return h("span", { class: "acts" }, this.copying(), this.act("again", t("Answer again"), "again"),
      this.act("fork", t("Fork after this"), "fork"), this.act("whatIf", t("What if…"), "think"));
  }

  /** None if the page came over plain HTTP from another machine: the browser then has no clipboard. */
  copying() {
    if (!navigator.clipboard) return null;
    const button = h("button", { class: "quiet", type: "button", title: t("Copy"), "aria-label": t("Copy") }, icon("copy"));
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(this.entry.text);
      fill(button, icon("tick"));
      setTimeout(() => fill(button, icon("copy")), 1500);
    });
    return button;
  }

  drawCalls(calls) {
    calls.forEach((call, at) => {
      if (this.drawnCalls[at]) this.drawnCalls[at].update(call);
      else this.calls.append((this.drawnCalls[at] = new ToolCall(call, this.acts, this.entry)).element);
    });
  }

  /** Show new output of running tools. */
  growOutput() {
    for (const call of this.drawnCalls) call.grow();
  }
}

class Answer extends Entry {
  constructor(entry, acts) {
    super(entry, acts, "answer");
    this.text = h("div", { class: "prose" });
    new Markdown(this.text, acts.cites?.(entry)).show(entry.text);
    this.element.classList.toggle("failed", Boolean(entry.failed));
    this.element.append(this.text);
  }

  update() {}
}

class Question extends Entry {
  constructor(entry, acts) {
    super(entry, acts, "asked");
    this.card = new QuestionCard(entry, acts.answer);
    this.element.append(this.card.element);
  }

  update(entry) {
    this.card.update(entry);
  }
}

const SIDES = { child: t("Result of a subagent"), parent: t("Task of this subagent"), heartbeat: t("Heartbeat") };

/** What a conversation has sent to another one: the result of a subagent, or its task. */
class Handed extends Entry {
  constructor(entry, acts) {
    super(entry, acts, "handed");
    const open = entry.side !== "heartbeat" && entry.text.length <= LONGEST_OPEN;
    const inside = h("div", { class: "prose" });
    this.waits = h("span", { class: "waits" });
    const details = h("details", { open, on: { toggle: () => details.open && new Markdown(inside).show(entry.text) } },
      h("summary", {}, icon(entry.side === "heartbeat" ? "health" : "subagent"), h("b", {}, SIDES[entry.side]), this.waits, this.time()), inside);
    if (open) new Markdown(inside).show(entry.text);
    this.element.setAttribute("aria-label", SIDES[entry.side]);
    this.element.append(details, linkTo(entry, acts) ?? "");
    this.update(entry);
  }

  update(entry) {
    this.entry = entry;
    this.waits.textContent = STATES[entry.state] ?? "";
  }
}

/** A link to another conversation; null where there is none to go to. */
function linkTo({ key, side }, acts) {
  const words = side === "child" ? t("Open its conversation") : t("Open the conversation that has asked");
  return acts.hrefOf && key ? h("a", { href: acts.hrefOf(key) }, words, icon("down")) : null;
}

class Aside extends Entry {
  constructor(entry, acts) {
    super(entry, acts, `aside ${entry.tone}`);
    const link = entry.child && acts.hrefOf ? h("a", { href: acts.hrefOf(entry.child) }, t("Open its conversation")) : null;
    const words = (this.words = h("span", {}, entry.text));
    if (!entry.detail) {
      this.retry = h("button", { class: "worded", type: "button", on: { click: () => acts.retry(this.entry) } }, icon("again"), t("Try again"));
      this.element.append(link ? h("span", {}, words, " ", link) : words, this.retry);
      this.update(entry);
      return;
    }
    const inside = h("div", { class: "prose" });
    const unfold = () => {
      new Markdown(inside, acts.cites?.(entry)).show(entry.detail);
      if (entry.places) markPassages([...inside.querySelectorAll("pre")], entry.places, entry.query, acts, entry);
    };
    const details = h("details", { on: { toggle: () => details.open && unfold() } },
      h("summary", {}, words), inside);
    this.element.append(link ? h("div", {}, details, link) : details);
  }

  update(entry) {
    this.entry = entry;
    this.words.textContent = entry.text; // an earlier page may complete it
    if (this.retry) this.retry.hidden = !entry.retry || !this.acts.retry;
  }
}

/** The name of an entry's stretch: about fifty messages, or those being sent. */
function stretchOf(entry) {
  if (entry.seq === null || entry.state === "waiting") return "end";
  return `${entry.session}:${Math.floor(entry.place / STRETCH)}`;
}

const KINDS = { person: Person, assistant: Assistant, answer: Answer, question: Question, aside: Aside, handed: Handed };
