// A small plot of the last hour: lines or bars over ten-second samples, with the last and largest value.
// No library: uPlot draws on a canvas, which neither a screen reader nor the page's styles reach, and is four times the size.

import { fill, h, svg } from "../elements.js";
import { t } from "../language.js";

const HEIGHT = 72;
const PAD = 4;

/** The possible ranges of a plot in seconds; the smallest that fits is used. */
const SPANS = [
  [300, t("5 minutes ago")],
  [1200, t("20 minutes ago")],
  [3600, t("an hour ago")],
];

/** `lines` are functions of a sample by name, null for no value; `unit` formats a number. */
export class SmallPlot {
  constructor({ title, lines, unit, bars = false, kind = "" }) {
    this.lines = Object.entries(lines);
    this.unit = unit;
    this.bars = bars;
    this.samples = [];
    this.status = h("p", { class: "status" });
    this.begins = h("span", {});
    this.picture = svg("svg", { "aria-hidden": "true", preserveAspectRatio: "none" });
    this.element = h(
      "figure",
      { class: `small-plot ${kind}` },
      h("figcaption", {}, title),
      this.status,
      this.picture,
      h("p", { class: "ends", "aria-hidden": "true" }, this.begins, h("span", {}, t("now"))),
      this.lines.length > 1 ? this.legend() : null,
    );
    this.watcher = new ResizeObserver(() => this.draw());
    this.watcher.observe(this.element);
  }

  end() {
    this.watcher.disconnect();
  }

  legend() {
    const name = ([each], index) => h("li", {}, h("span", { class: `swatch line-${index}` }), each);
    return h("ul", { class: "legend" }, this.lines.map(name));
  }

  /** Draw samples, oldest first, each `every` seconds long. */
  show(samples, every) {
    this.samples = samples;
    this.every = every;
    this.draw();
    this.status.textContent = this.words();
  }

  /** The accessible description of the plot, and its values. */
  words() {
    if (!this.samples.length) return t("No data yet.");
    const [name, of] = this.lines[0];
    const found = this.samples.map(of).filter((value) => value != null);
    if (!found.length) return t("{name}: no data in the last hour", { name });
    return t("{name}: {last} now, {most} at most", { name, last: this.unit(found.at(-1)), most: this.unit(Math.max(...found)) });
  }

  draw() {
    const { samples, picture } = this;
    this.width = Math.max(120, this.element.clientWidth);
    picture.setAttribute("viewBox", `0 0 ${this.width} ${HEIGHT}`);
    picture.setAttribute("height", HEIGHT);
    const end = samples.at(-1)?.at ?? 0;
    const [span, name] = SPANS.find(([most]) => end - (samples[0]?.at ?? end) < most) ?? SPANS.at(-1);
    this.begins.textContent = name;
    this.span = span;
    const values = samples.flatMap((sample) => this.lines.map(([, of]) => of(sample) ?? 0));
    this.top = Math.max(...values, 0) || 1;
    this.x = (at) => round(this.width - ((end - at) / span) * this.width);
    this.y = (value) => round(HEIGHT - PAD - (value / this.top) * (HEIGHT - 2 * PAD));
    const drawn = this.lines.map(([, of], index) => (this.bars ? this.columns(of, index) : this.line(of, index)));
    fill(
      picture,
      svg("line", { class: "base", x1: 0, x2: this.width, y1: HEIGHT - PAD, y2: HEIGHT - PAD }),
      drawn.reverse(),
    );
  }

  /** A line with gaps where there is no value; a single value is a dot. */
  line(of, index) {
    let outline = "";
    let before = false;
    const values = this.samples.map(of);
    values.forEach((value, at) => {
      if (value == null) before = false;
      else {
        const [x, y] = [this.x(this.samples[at].at), this.y(value)];
        const alone = !before && values[at + 1] == null;
        outline += alone ? `M${x - 1},${y}h2` : `${before ? "L" : "M"}${x},${y}`;
        before = true;
      }
    });
    return svg("path", { class: `line line-${index}`, d: outline, "vector-effect": "non-scaling-stroke" });
  }

  columns(of, index) {
    const width = Math.max(1, round((this.every / this.span) * this.width - 0.5));
    const base = HEIGHT - PAD;
    let outline = "";
    for (const sample of this.samples) {
      const value = of(sample);
      if (value) outline += `M${round(this.x(sample.at) - width)},${base}V${this.y(value)}h${width}V${base}Z`;
    }
    return svg("path", { class: `column line-${index}`, d: outline });
  }
}

const round = (number) => Math.round(10 * number) / 10;
