// Diagrams of Mermaid. A hidden frame draws them (`diagram_frame.js`), and the page shows the result as a picture, in which nothing
// runs and nothing is loaded, whatever the frame returns.
import { h, readable } from "../elements.js";
import { t } from "../language.js";

const PATIENCE = 10_000; // milliseconds for a diagram
const LARGEST = 4_000_000; // characters of a picture
const NEAR = "1000px"; // a diagram is drawn when it is this near to the window

/** Draws one diagram after the other. A frame that does not answer is replaced. */
class Frame {
  constructor() {
    this.last = Promise.resolve();
    this.number = 0;
    window.addEventListener("message", (event) => event.source === this.element?.contentWindow && this.answer?.(event.data));
  }

  /** Return the SVG of a diagram. Throws an Error with the reason. */
  draw(source) {
    return (this.last = this.last.catch(() => {}).then(() => this.ask(source)));
  }

  async ask(source) {
    if (!this.element) await this.open();
    const id = ++this.number;
    const { svg, problem } = await this.answered((data) => data.id === id, () => this.element.contentWindow.postMessage({ id, source, theme: theme() }, "*"));
    if (typeof svg !== "string") throw new Error(String(problem ?? ""));
    if (svg.length > LARGEST) throw new Error(t("The diagram is too large."));
    return svg;
  }

  open() {
    this.element = h("iframe", { class: "diagram-frame", title: t("Diagrams"), tabIndex: -1, "aria-hidden": "true", sandbox: "allow-scripts",
      src: new URL("diagram_frame.html", import.meta.url).href });
    return this.answered((data) => data.ready, () => document.body.append(this.element));
  }

  /** Ask, and return the first answer that is meant. */
  async answered(meant, ask) {
    let timer;
    try {
      return await new Promise((resolve, reject) => {
        this.answer = (data) => data && typeof data === "object" && meant(data) && resolve(data);
        timer = setTimeout(() => reject(new Error(t("It takes too long."))), PATIENCE);
        ask();
      });
    } catch (error) {
      this.element.remove();
      this.element = null;
      throw error;
    } finally {
      clearTimeout(timer);
      this.answer = null;
    }
  }
}

const frame = new Frame();
const shown = new Set();
const nearby = new IntersectionObserver((seen) => {
  for (const { target, isIntersecting } of seen) {
    if (!isIntersecting) continue;
    nearby.unobserve(target);
    target.diagram.draw();
  }
}, { rootMargin: NEAR });

/** The picture of a block of code in Mermaid's language, in place of its source, which can still be shown. */
export class Diagram {
  constructor(block) {
    this.block = block;
    this.picture = h("img", { alt: t("Diagram; its source is below"), draggable: false });
    this.zoom = h("button", { type: "button", class: "diagram", "aria-label": t("Full size"), title: t("Full size"), hidden: true,
      on: { click: () => this.resize() } }, this.picture);
    this.problem = h("p", { class: "problem", hidden: true });
    this.toggle = h("button", { type: "button", class: "quiet worded", hidden: true, on: { click: () => this.show(this.zoom.hidden) } });
    block.head.firstChild.after(this.toggle);
    block.head.after(this.zoom, this.problem);
    block.element.diagram = this;
    nearby.observe(block.element);
  }

  async draw() {
    try {
      const svg = await frame.draw(this.block.text);
      this.picture.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
      await this.picture.decode();
      this.toggle.hidden = false;
      if (!shown.has(this)) this.show(true);
      shown.add(this);
    } catch (error) {
      const reason = readable(error.message).split("\n").find((line) => line.trim()) ?? "";
      this.problem.textContent = t("The diagram cannot be drawn: {reason}", { reason: reason.slice(0, 200) });
      this.problem.hidden = false;
    }
  }

  show(picture) {
    this.zoom.hidden = !picture;
    this.block.body.hidden = picture;
    this.toggle.textContent = picture ? t("Source") : t("Diagram");
  }

  resize() {
    this.zoom.setAttribute("aria-pressed", String(this.zoom.classList.toggle("natural")));
  }
}

const COLOURS = { background: "card", primaryColor: "accent-wash", primaryTextColor: "ink", primaryBorderColor: "accent", secondaryColor: "raised",
  tertiaryColor: "side", lineColor: "faint", textColor: "ink", noteBkgColor: "warn-wash", noteTextColor: "ink", noteBorderColor: "warn",
  edgeLabelBackground: "card", clusterBkg: "side", clusterBorder: "line", errorBkgColor: "fault-wash", errorTextColor: "fault",
  pie1: "kind-1", pie2: "kind-2", pie3: "kind-3", pie4: "kind-4", pie5: "kind-5", pieStrokeColor: "card", pieOuterStrokeColor: "line",
  pieSectionTextColor: "card" };

/** The colours and the font of the page, as Mermaid names them. */
function theme() {
  const probe = document.body.appendChild(h("span", { hidden: true }));
  const resolved = (name) => {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  };
  const themeVariables = Object.fromEntries(Object.entries(COLOURS).map(([name, ours]) => [name, resolved(ours)]));
  const fontFamily = getComputedStyle(document.body).fontFamily;
  const darkMode = brightness(themeVariables.background) < 128;
  probe.remove();
  return { theme: "base", fontFamily, themeVariables: { ...themeVariables, darkMode, fontFamily, fontSize: "14px" } };
}

function brightness(colour) {
  const [red, green, blue] = colour.match(/[\d.]+/g).map(Number);
  return 0.299 * red + 0.587 * green + 0.114 * blue;
}

/** Draw the diagrams again that are in the page, in the colours of another theme. */
function redraw() {
  for (const diagram of shown) {
    if (diagram.block.element.isConnected) nearby.observe(diagram.block.element);
    else shown.delete(diagram);
  }
}

new MutationObserver(redraw).observe(document.documentElement, { attributeFilter: ["data-theme"] });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
