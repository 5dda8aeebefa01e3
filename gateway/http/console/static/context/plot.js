// The stacked plot of a session's turns: the contents of each request against the window and its reserve, and what was done to
// reduce it. One path for each part, however many turns there are. No library: see small_plot.js; here keys select a turn too.

import { h, svg } from "../elements.js";
import { brief, count, when } from "../format.js";
import { t } from "../language.js";

export const NAMES = {
  instructions: t("Instructions and tools"),
  summary: t("Summary"),
  recalled: t("Recalled"),
  conversation: t("Conversation"),
  results: t("Tool results"),
};

const LANES = [t("Pruned"), t("Flushed"), t("Compact.")];
const LANE_OF = { pruned: 0, flushed: 1, compacted: 2, abandoned: 2, reverted: 2 };

const HEIGHT = 260;
const LANE = 14;
const LANES_TOP = HEIGHT + 8;
const LEFT = 68;
const RIGHT = 8;
const TOP = 10;
const BELOW = 22;

/** Above this share of the window the whole window is drawn; below, the plot fits its contents. */
const NEAR_WINDOW = 0.2;

/** The maximum width of a turn in pixels. */
const WIDEST = 48;

/** Keys that move the selection, and by how many turns. */
const STEPS = { ArrowLeft: -1, ArrowRight: 1, ArrowDown: -1, ArrowUp: 1, PageDown: -10, PageUp: 10 };

export class ContextPlot {
  /** `choose(turn)` is called with a turn that was selected by mouse or keys. */
  constructor(choose) {
    this.choose = choose;
    this.page = null;
    this.chosen = null;
    this.cursor = svg("line", { class: "cursor", visibility: "hidden" });
    this.marker = svg("rect", { class: "chosen", visibility: "hidden" });
    this.picture = svg("svg", { "aria-hidden": "true" });
    this.readout = h("p", { class: "readout" });
    this.beyond = h("p", { class: "beyond" });
    this.element = h(
      "div",
      {
        class: "context-plot",
        tabIndex: 0,
        role: "slider",
        "aria-label": t("Turn"),
        on: {
          keydown: (event) => this.walk(event),
          pointermove: (event) => this.hover(event),
          pointerleave: () => this.leave(),
          click: (event) => this.click(event),
        },
      },
      this.picture,
    );
    this.watcher = new ResizeObserver(() => this.draw());
    this.watcher.observe(this.element);
  }

  /** Stop observing; the plot is no longer on the page. */
  end() {
    this.watcher.disconnect();
  }

  /** Draw a page of turns, as the gateway sends it. */
  show(page) {
    this.page = page;
    this.draw();
  }

  /** Select a turn; null for none. */
  mark(turn) {
    this.chosen = turn;
    this.place();
  }

  // --- drawing -------------------------------------------------------------------------------------------------------

  draw() {
    const { page, element, picture } = this;
    if (!page) return;
    const turns = page.turns;
    this.width = Math.max(240, element.clientWidth);
    const height = LANES_TOP + LANES.length * LANE + BELOW;
    picture.setAttribute("viewBox", `0 0 ${this.width} ${height}`);
    picture.setAttribute("width", this.width);
    picture.setAttribute("height", height);
    const most = Math.max(1, ...turns.map((turn) => turn.tokens));
    const window = Math.max(0, ...turns.map((turn) => turn.window ?? 0));
    this.top = window && most > NEAR_WINDOW * window ? Math.max(most, window) * 1.04 : most * 1.15;
    this.step = Math.min(WIDEST, (this.width - LEFT - RIGHT) / Math.max(1, turns.length));
    picture.replaceChildren(
      this.axis(),
      ...page.parts.map((part, index) => this.layer(part, index)),
      this.limit("window", (turn) => turn.window),
      this.limit("reserve", (turn) => turn.window && turn.window - turn.reserve),
      this.lanes(),
      this.turnAxis(height),
      this.marker,
      this.cursor,
    );
    this.beyond.textContent = window > this.top ? t("The window, {count} tokens, is far above the range of the plot.", { count: count(window) }) : "";
    this.place();
  }

  x(index) {
    return round(LEFT + index * this.step);
  }

  y(tokens) {
    return round(TOP + (HEIGHT - TOP) * (1 - tokens / this.top));
  }

  /** Return the bars of a part, stacked on the parts below it, as one path: along the tops, and back along the bottoms. */
  layer(part, index) {
    const tops = [];
    const bottoms = [];
    const gap = this.step > 5 ? 1 : 0;
    this.page.turns.forEach((turn, at) => {
      const below = turn.parts.slice(0, index).reduce((sum, tokens) => sum + tokens, 0);
      const [left, right] = [this.x(at), this.x(at + 1) - gap];
      const [low, high] = [this.y(below), this.y(below + turn.parts[index])];
      if (gap) tops.push(`M${left},${low}V${high}H${right}V${low}Z`);
      else {
        tops.push(`${at ? "L" : "M"}${left},${high}L${right},${high}`);
        bottoms.push(`L${right},${low}L${left},${low}`);
      }
    });
    const outline = tops.join("") + bottoms.reverse().join("") + (gap || !tops.length ? "" : "Z");
    return svg("path", { class: `layer ${part}`, d: outline });
  }

  limit(name, of) {
    let outline = "";
    this.page.turns.forEach((turn, at) => {
      const tokens = of(turn);
      if (!tokens || tokens > this.top) return;
      outline += `M${this.x(at)},${this.y(tokens)}H${this.x(at + 1)}`;
    });
    return svg("path", { class: `limit ${name}`, d: outline });
  }

  axis() {
    const lines = ticks(this.top).map((tokens) => [
      svg("line", { class: "grid", x1: LEFT, x2: this.width - RIGHT, y1: this.y(tokens), y2: this.y(tokens) }),
      svg("text", { class: "tick", x: LEFT - 6, y: this.y(tokens) + 4, "text-anchor": "end" }, brief(tokens)),
    ]);
    return svg("g", {}, lines);
  }

  lanes() {
    const indexes = new Map(this.page.turns.map((turn, index) => [turn.turn, index]));
    const group = svg("g", {});
    LANES.forEach((name, lane) => {
      const y = LANES_TOP + lane * LANE;
      group.append(svg("rect", { class: "lane", x: LEFT, y: y + 3, width: this.width - LEFT - RIGHT, height: LANE - 3 }));
      group.append(svg("text", { class: "tick", x: LEFT - 6, y: y + LANE - 2, "text-anchor": "end" }, name));
    });
    for (const mark of this.page.marks) {
      const index = indexes.get(mark.turn);
      if (index === undefined) continue;
      const width = Math.max(2, Math.min(8, this.step - 1));
      const x = this.x(index) + (this.step - width) / 2;
      group.append(
        svg("rect", { class: `mark ${mark.kind}`, x, y: LANES_TOP + LANE_OF[mark.kind] * LANE + 4, width, height: LANE - 5, rx: 1 }),
      );
    }
    return group;
  }

  turnAxis(height) {
    const turns = this.page.turns;
    if (!turns.length) return svg("g");
    const every = nice(70 / this.step); // turns between two labels
    const label = (turn, index) => {
      const x = Math.min(this.x(index) + this.step / 2, this.width - 16); // so that the last label is not cut off
      return svg("text", { class: "tick", x, y: height - 6, "text-anchor": "middle" }, String(turn.turn));
    };
    return svg("g", {}, turns.map((turn, index) => (turn.turn % every === 0 ? label(turn, index) : null)));
  }

  // --- choosing ------------------------------------------------------------------------------------------------------

  indexOf(turn) {
    return this.page ? this.page.turns.findIndex((each) => each.turn === turn) : -1;
  }

  /** Move the marker to the selected turn and update its accessible value. */
  place() {
    const index = this.indexOf(this.chosen);
    const turns = this.page?.turns ?? [];
    this.marker.setAttribute("visibility", index < 0 ? "hidden" : "visible");
    if (turns.length) {
      this.element.setAttribute("aria-valuemin", turns[0].turn);
      this.element.setAttribute("aria-valuemax", turns.at(-1).turn);
    }
    if (index < 0) {
      this.element.setAttribute("aria-valuenow", turns.at(-1)?.turn ?? 0);
      this.element.setAttribute("aria-valuetext", t("No turn selected"));
      this.showReadout(turns.at(-1));
      return;
    }
    const width = Math.max(this.step, 3);
    for (const [name, value] of Object.entries({ x: this.x(index), y: TOP, width, height: LANES_TOP + LANES.length * LANE - TOP })) {
      this.marker.setAttribute(name, value);
    }
    this.element.setAttribute("aria-valuenow", this.chosen);
    this.element.setAttribute("aria-valuetext", describeTurn(turns[index], this.page.parts));
    this.showReadout(turns[index]);
  }

  showReadout(turn) {
    this.readout.textContent = turn ? describeTurn(turn, this.page.parts) : "";
  }

  under(event) {
    const box = this.picture.getBoundingClientRect();
    const index = Math.floor((event.clientX - box.left - LEFT) / this.step);
    return this.page?.turns[Math.max(0, Math.min(index, this.page.turns.length - 1))];
  }

  hover(event) {
    const turn = this.under(event);
    if (!turn) return;
    const x = this.x(this.indexOf(turn.turn)) + this.step / 2;
    for (const [name, value] of Object.entries({ x1: x, x2: x, y1: TOP, y2: HEIGHT, visibility: "visible" })) {
      this.cursor.setAttribute(name, value);
    }
    this.showReadout(turn);
  }

  leave() {
    this.cursor.setAttribute("visibility", "hidden");
    const index = this.indexOf(this.chosen);
    if (this.page) this.showReadout(this.page.turns[index < 0 ? this.page.turns.length - 1 : index]);
  }

  click(event) {
    const turn = this.under(event);
    if (turn) this.choose(turn.turn);
  }

  walk(event) {
    const turns = this.page?.turns ?? [];
    if (!turns.length || event.ctrlKey || event.metaKey || event.altKey) return;
    const from = this.indexOf(this.chosen);
    let to = null;
    if (event.key in STEPS) to = from < 0 ? turns.length - 1 : from + STEPS[event.key];
    else if (event.key === "Home") to = 0;
    else if (event.key === "End" || event.key === "Enter" || event.key === " ") to = event.key === "End" || from < 0 ? turns.length - 1 : from;
    if (to === null) return;
    event.preventDefault();
    this.choose(turns[Math.max(0, Math.min(to, turns.length - 1))].turn);
  }
}

/** The legend of colours and marks. */
export function legend(parts) {
  const colours = parts.map((part) => h("li", {}, h("span", { class: `swatch ${part}` }), NAMES[part]));
  const lines = [
    h("li", {}, h("span", { class: "swatch line window" }), t("Window")),
    h("li", {}, h("span", { class: "swatch line reserve" }), t("Compaction threshold")),
  ];
  const marks = [
    h("li", {}, h("span", { class: "swatch tickmark abandoned" }), t("Failed")),
    h("li", {}, h("span", { class: "swatch tickmark reverted" }), t("Reverted")),
  ];
  return h("ul", { class: "legend", "aria-label": t("Legend") }, colours, lines, marks);
}

/** A turn in one line. */
export function describeTurn(turn, parts) {
  const each = parts
    .map((part, index) => [NAMES[part], turn.parts[index]])
    .filter(([, tokens]) => tokens)
    .map(([name, tokens]) => `${name} ${count(tokens)}`);
  const shown = { number: turn.turn, time: when(turn.at), tokens: count(turn.tokens), parts: each.join(", ") };
  if (!turn.window) return t("Turn {number}, {time}: {tokens} tokens; {parts}", shown);
  const share = Math.round((100 * turn.tokens) / turn.window);
  return t("Turn {number}, {time}: {tokens} of {window} ({share} %) tokens; {parts}", { ...shown, window: count(turn.window), share });
}

/** Round to a tenth of a pixel. */
const round = (number) => Math.round(10 * number) / 10;

/** Three to six round numbers up to `top`. */
function ticks(top) {
  const every = nice(top / 5);
  const found = [];
  for (let at = 0; at <= top; at += every) found.push(at);
  return found;
}

/** The next larger of 1, 2, 5, 10, 20, … */
function nice(number) {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, number)));
  return [1, 2, 5, 10].map((times) => times * power).find((each) => each >= number) ?? 10 * power;
}
