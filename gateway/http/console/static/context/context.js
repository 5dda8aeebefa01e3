// The page `#/context/KEY`: the model's context in a session, turn by turn.

import { button } from "../controls.js";
import { ContextPlot, legend } from "./plot.js";
import { CompactionPanel, TurnPanel } from "./turn.js";
import { fill, h } from "../elements.js";
import { eventAt, runCommand } from "../socket.js";
import { count, sentence } from "../format.js";
import { t, tn } from "../language.js";
import { costOfAll, money, prices } from "../money.js";

const SPANS = [100, 500, 2000];

/** Events after which the page is reloaded. */
const CHANGING = ["turn_ended", "context_compacted", "compaction_reverted", "session_opened"];

/** The number of compactions in the list. */
const LISTED = 12;

/** Milliseconds between requests while the journal is still being read. */
const AGAIN = 150;

/** Show the context of the route's session in an element; returns a function that removes it. */
export async function mount(element, app, route) {
  await app.styles("context/context.css");
  const [named = "", turn = ""] = route.rest; // `~` in place of the current session
  const session = named === "~" ? "" : named;
  const name = app.conversations.nameOf(route.key);
  app.head(session ? t("Context of {name}, earlier", { name }) : t("Context of {name}", { name }));
  const page = new ContextPage(element, app, route.key, session);
  page.load().then(() => turn && page.compare(Number(turn)));
  return () => page.end();
}

/** The compactions of these turns, newest first, while nothing is selected. */
function compactions(page, look) {
  const made = page.marks.filter((mark) => mark.kind === "compacted").reverse();
  if (!made.length) return null;
  const row = (mark) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, button(t("Compaction {number}", { number: mark.compaction }), () => look(mark.compaction), { class: "worded" })),
      h("td", {}, t("turn {number}", { number: mark.turn })),
      h("td", {}, t("{before} → {after} tokens", { before: count(mark.before), after: count(mark.after) })),
      h("td", {}, page.in_force.includes(mark.compaction) ? t("in force") : t("reverted")),
    );
  return h(
    "section",
    { "aria-labelledby": "compactions-heading" },
    h("h2", { id: "compactions-heading" }, tn(made.length, "one compaction", "{count} compactions")),
    h("table", { class: "compactions" }, h("tbody", {}, made.slice(0, LISTED).map(row))),
    made.length > LISTED ? h("p", { class: "about" }, t("Older compactions are marked in the plot.")) : null,
  );
}

class ContextPage {
  /** `session` is an earlier one of the key; empty for the current. */
  constructor(element, app, key, session) {
    this.app = app;
    this.key = key;
    this.session = session;
    this.place = `/api/context/${encodeURIComponent(key)}`;
    this.span = globalThis.innerWidth < 700 ? SPANS[0] : SPANS[1];
    this.before = null;
    this.ended = false;
    this.plot = new ContextPlot((turn) => this.choose(turn));
    this.state = h("p", { class: "progress", role: "status" });
    this.controls = h("div", { class: "controls" });
    this.others = h("p", { class: "about" });
    this.unsubscribe = this.listen();
    this.prices = new Map();
    prices(app.api).then((known) => {
      this.prices = known;
      if (this.page?.turns.length) this.spent(this.page);
    });
    this.sum = h("p", { class: "about spent" });
    this.panel = h("div", { class: "turn-place" });
    this.shown = h("div", { class: "plot-place" });
    fill(
      element,
      h(
        "div",
        { class: "context-page" },
        h("p", { class: "about" }, t("The contents of each request, in tokens. Select a turn to see exactly what was sent.")),
        this.controls,
        this.others,
        this.state,
        this.shown,
        this.sum,
        this.panel,
      ),
    );
  }

  /** Reload when something has happened in the session. */
  listen() {
    this.app.socket.say({ type: "subscribe", session: this.key });
    return this.app.socket.on("event", ({ session, event }) => {
      if (session !== this.key || this.session || this.before || !CHANGING.includes(event.kind)) return;
      clearTimeout(this.again);
      this.again = setTimeout(() => this.ended || this.load(), AGAIN);
    });
  }

  end() {
    this.ended = true;
    this.unsubscribe();
    this.plot.end();
    this.leaveTurn();
  }

  async load() {
    const query = new URLSearchParams({ limit: this.span });
    if (this.before) query.set("before", this.before);
    if (this.session) query.set("session", this.session);
    this.state.textContent ||= t("Reading the log…");
    try {
      const page = await this.app.api.get(`${this.place}?${query}`);
      if (this.ended) return;
      this.show(page);
      if (page.read < page.head) setTimeout(() => this.ended || this.load(), AGAIN);
    } catch (error) {
      if (this.ended) return;
      const isNew = error.code === "not_found" && !this.session;
      this.state.textContent = isNew ? "" : sentence(error);
      if (isNew) fill(this.shown, this.nothing());
    }
  }

  /** What is shown until a model has been called. */
  nothing() {
    return h("div", { class: "empty" },
      h("h2", {}, t("No model has been called in this session yet.")),
      h("p", {}, t("The first message fills this page: what each request contained, what it used, and what was left out.")),
      h("a", { href: `#/chat/${encodeURIComponent(this.key)}` }, t("Write a message")));
  }

  show(page) {
    const isReading = page.read < page.head;
    if (isReading) page.turns.pop(); // it is incomplete
    this.page = page;
    this.state.textContent = isReading ? t("Reading the log: {percent} %", { percent: Math.floor((100 * page.read) / page.head) }) : "";
    fill(this.others, this.elsewhere(page));
    if (!page.turns.length) {
      fill(this.shown, isReading ? null : this.nothing());
      return;
    }
    if (!this.plot.element.isConnected) fill(this.shown, this.plot.element, this.plot.readout, this.plot.beyond, legend(page.parts));
    this.plot.show(page);
    this.control(page);
    this.spent(page);
    if (!this.plot.chosen) fill(this.panel, isReading ? null : compactions(page, (number) => this.look(number)));
  }

  /** Say what the shown turns used, and what that cost if all prices are known. */
  spent(page) {
    const sum = { input: 0, output: 0, cached: 0 };
    const byModel = {};
    for (const [model, usage] of page.turns.flatMap((turn) => Object.entries(turn.usage))) {
      byModel[model] ??= { input: 0, output: 0, cached: 0 };
      for (const kind of Object.keys(sum)) {
        sum[kind] += usage[kind];
        byModel[model][kind] += usage[kind];
      }
    }
    const paid = costOfAll(this.prices, byModel);
    const tokens = { input: count(sum.input), cached: count(sum.cached), output: count(sum.output) };
    this.sum.textContent = sum.input
      ? [t("These turns: {input} tokens in ({cached} cached), {output} out.", tokens), paid ? t("Cost: {money}.", { money: money(paid) }) : ""].join(" ") : "";
  }

  /** Links to the previous session and back to the current one. */
  elsewhere(page) {
    const place = `#/context/${encodeURIComponent(this.key)}`;
    const before = page.before && h("a", { href: `${place}/${page.before}` }, t("Previous session"));
    const now = this.session && h("a", { href: place }, t("Current session"));
    return [before || null, before && now ? " · " : null, now || null];
  }

  control(page) {
    const [first, last] = [page.turns[0].turn, page.turns.at(-1).turn];
    const step = (name, before, possible) => button(name, () => this.go(before), { disabled: !possible });
    const later = last + this.span + 1;
    fill(
      this.controls,
      h(
        "label",
        {},
        t("Turns"), " ",
        h(
          "select",
          { on: { change: (event) => this.widen(Number(event.target.value)) } },
          SPANS.map((span) => h("option", { value: span, selected: span === this.span }, String(span))),
        ),
      ),
      step(t("Earlier"), first, page.earlier),
      step(t("Later"), later, !page.newest),
      h("span", { class: "range" }, first === last ? t("Turn {first}", { first }) : t("Turns {first} to {last}", { first, last })),
      button(t("Refresh"), () => this.load()),
    );
  }

  go(before) {
    this.before = before;
    this.load();
  }

  widen(span) {
    this.span = span;
    this.load();
  }

  /** Return what a panel needs to load more. */
  at() {
    const { key, place } = this;
    const { api, socket } = this.app;
    const { session } = this.page;
    return { api, place, session, prices: this.prices, event: (seq) => eventAt(socket, key, session, seq) };
  }

  /** Compare answers to the last request of a turn. */
  async compare(turn) {
    while (!this.ended && this.page && this.page.read < this.page.head) await new Promise((go) => setTimeout(go, AGAIN));
    if (this.ended || !this.page?.turns.some((each) => each.turn === turn)) return;
    this.choose(turn);
    clearTimeout(this.soon);
    this.open(turn);
    await this.turn.ready;
    if (this.turn) await this.turn.compare();
  }

  leaveTurn() {
    this.turn?.end();
    this.turn = null;
  }

  choose(number) {
    this.plot.mark(number);
    clearTimeout(this.soon);
    // Moving by keys loads the turn where it stops, not each on the way.
    this.soon = setTimeout(() => this.open(number), 120);
  }

  open(number) {
    const turn = this.page.turns.find((each) => each.turn === number);
    const marks = this.page.marks.filter((mark) => mark.turn === number);
    this.leaveTurn();
    this.turn = new TurnPanel(this.at(), turn, this.page.parts, marks, (compaction) => this.look(compaction));
    fill(this.panel, this.turn.element);
  }

  look(number) {
    clearTimeout(this.soon);
    this.leaveTurn();
    const revert = async (compaction) => {
      const answered = await runCommand(this.app.socket, this.key, `/revert ${compaction}`);
      this.before = null;
      await this.load();
      return answered;
    };
    const above = this.page.in_force.filter((other) => other > number).length;
    const panel = new CompactionPanel(this.at(), number, { revert: this.session ? null : revert, above });
    fill(this.panel, panel.element);
    panel.element.querySelector("h2").focus();
  }
}

