// The page `#/health`: the state of the gateway, the last hour, its plugins, and its token usage.

import { fill, h, readable } from "../elements.js";
import { brief, count, seconds, sentence, when } from "../format.js";
import { t, tn } from "../language.js";
import { money } from "../money.js";
import { ChannelSections } from "./channels.js";
import { SmallPlot } from "./small_plot.js";
import { table } from "../table.js";

const MEBIBYTE = 2 ** 20;

/** The maximum number of a plugin's items that are shown unfolded. */
const FEW = 8;

/** The small plots: title, unit, and lines by name, the first drawn most strongly. */
const PLOTS = [
  { title: t("Turns"), unit: brief, bars: true, lines: { [t("per 10 s")]: (s) => s.turns } },
  { title: t("Errors"), unit: brief, bars: true, kind: "errors", lines: { [t("per 10 s")]: (s) => s.errors } },
  {
    title: t("Latency by step"),
    unit: seconds,
    lines: {
      [t("answer")]: (s) => s.steps.answer,
      [t("first text")]: (s) => s.steps.first_text,
      [t("tool")]: (s) => s.steps.tool,
      [t("waiting")]: (s) => s.steps.waiting,
      [t("durable")]: (s) => s.steps.durable,
      [t("end")]: (s) => s.steps.end,
    },
  },
  { title: t("Event loop lag"), unit: seconds, lines: { [t("longest within a minute")]: (s) => s.lag } },
  { title: t("Sync latency"), unit: seconds, lines: { [t("mean")]: (s) => s.sync } },
  { title: t("Queue"), unit: brief, lines: { [t("waiting")]: (s) => s.waiting, [t("running")]: (s) => s.running } },
  { title: t("Tokens"), unit: brief, bars: true, lines: { [t("per 10 s")]: (s) => s.tokens } },
  { title: t("Memory"), unit: (bytes) => `${Math.round(bytes / MEBIBYTE)} MB`, lines: { [t("resident")]: (s) => s.memory } },
];

/** Show the gateway's health in an element; returns a function that removes it. */
export async function mount(element, app) {
  await app.styles("health/health.css");
  const page = new HealthPage(element, app.api);
  page.load();
  return () => page.end();
}

class HealthPage {
  constructor(element, api) {
    this.api = api;
    this.ended = false;
    this.plots = PLOTS.map((plot) => new SmallPlot(plot));
    this.state = h("div", { class: "verdict", role: "status" });
    this.tiles = h("dl", { class: "tiles" });
    this.tables = h("div", { class: "tables" });
    this.channels = new ChannelSections(api);
    this.page = h(
      "div",
      { class: "health-page" },
      this.state,
      this.tiles,
      h("h2", {}, t("The last hour")),
      h("div", { class: "plots" }, this.plots.map((plot) => plot.element)),
      this.channels.element,
      this.tables,
      h("p", { class: "nothing" }, t("For programs:"), " ", ...["/status.json", "/metrics"].flatMap((path) => [h("a", { href: path }, path), " "])),
    );
    fill(element, this.page);
    this.look = () => document.visibilityState === "visible" && this.load();
    document.addEventListener("visibilitychange", this.look);
  }

  end() {
    this.ended = true;
    clearTimeout(this.timer);
    document.removeEventListener("visibilitychange", this.look);
    this.plots.forEach((plot) => plot.end());
  }

  /** Load now, and again with each new sample, while the page is visible. */
  async load() {
    clearTimeout(this.timer);
    let every = 10;
    try {
      const [health, usage] = await Promise.all([this.api.get("/api/health"), this.api.get("/api/usage").catch(() => null)]);
      if (this.ended) return;
      this.show(health, usage);
      every = health.every;
    } catch (error) {
      if (!this.ended) fill(this.state, h("p", { class: "wrong" }, sentence(error)));
      if (error.status) return void fill(this.page, this.state); // in ten seconds the answer would be the same
    }
    if (!this.ended && document.visibilityState === "visible") this.timer = setTimeout(() => this.load(), 1000 * every);
  }

  show(health, usage) {
    const { overview, samples } = health;
    this.verdict(overview);
    fill(this.tiles, tiles(overview));
    this.plots.forEach((plot) => plot.show(samples, health.every));
    this.channels.show(overview.channels);
    fill(this.tables, costs(usage), spent(health.spent), plugins(health.plugins), providerErrors(health.provider_errors));
  }

  /** Update the text only if it has changed: otherwise a screen reader would read it every ten seconds. */
  verdict(overview) {
    const wrong = [...(overview.refuses ? [t("The gateway is not accepting messages: {reason}", { reason: overview.refuses })] : []), ...overview.troubles];
    const text = wrong.join("\n") || t("No problems.");
    if (this.said === text) return;
    this.said = text;
    if (wrong.length) fill(this.state, h("ul", { class: "wrong" }, wrong.map((each) => h("li", {}, each))));
    else fill(this.state, h("p", { class: "well" }, text));
  }
}

function tiles(overview) {
  const ended = Object.values(overview.turns).reduce((sum, number) => sum + number, 0);
  const failed = Object.entries(overview.errors);
  const { storage } = overview;
  const shown = [
    [t("Version"), overview.version, t("since {time}", { time: when(overview.since) })],
    [t("Model"), overview.model.split(", because")[0], overview.model.split(", ").slice(1).join(", ")],
    [t("Sessions"), count(overview.sessions), tn(overview.websockets, "{memory} in memory, one client", "{memory} in memory, {count} clients", { memory: count(overview.conversations) })],
    [t("Turns"), count(ended), t("{running} running, {waiting} waiting", { running: count(overview.running_turns), waiting: count(overview.waiting_messages) })],
    [t("Errors"), count(failed.reduce((sum, [, number]) => sum + number, 0)), failed.map(([code, number]) => `${code} ${number}`).join(", ") || t("none")],
    [t("Tokens"), brief(overview.input_tokens), t("in, {count} out", { count: brief(overview.output_tokens) })],
    [t("Storage"), storage.sync_seconds == null ? "–" : seconds(storage.sync_seconds),
      `${tn(storage.syncs, "one sync", "{count} syncs")}, ${tn(storage.failures, "one failure", "{count} failures")}`],
    [t("Process"), `${Math.round(overview.memory / MEBIBYTE)} MB`,
      overview.descriptors == null ? t("process {number}", { number: overview.process }) : tn(overview.descriptors, "one open file", "{count} open files")],
  ];
  return shown.map(([name, value, more]) => h("div", {}, h("dt", {}, name), h("dd", {}, h("strong", {}, value), h("span", {}, more))));
}

/** What this month's requests cost, by person, purpose and model; null if nothing had a price. */
function costs(usage) {
  if (!usage?.total.micros) return null;
  const paid = (micros) => money({ amount: micros / 1e6, currency: usage.currency });
  const caption = usage.forecast === null ? t("Costs of this month: {money}", { money: paid(usage.total.micros) })
    : t("Costs of this month: {money}, at this rate {forecast} by its end", { money: paid(usage.total.micros), forecast: paid(usage.forecast) });
  const kinds = [[t("Person"), usage.people], [t("Purpose"), usage.purposes], [t("Model"), usage.models]];
  const rows = kinds.flatMap(([kind, parts]) => parts.filter(({ micros }) => micros).map((part) => [
    readable(part.name || "–"), kind, count(part.requests), paid(part.micros),
  ]));
  return table(caption, [t("Spent on"), "", t("Requests"), t("Cost")], "", rows);
}

/** Tokens by purpose and model, the largest first. */
function spent(rows) {
  const found = new Map();
  for (const { purpose, model, direction, tokens } of rows) {
    const key = `${purpose}\n${model}`;
    found.set(key, { ...(found.get(key) ?? { purpose, model, input: 0, output: 0, cached: 0 }), [direction]: tokens });
  }
  const sorted = [...found.values()].sort((one, other) => other.input + other.output - one.input - one.output);
  return table(t("Tokens by purpose, since the start"), [t("Purpose"), t("Model"), t("In"), t("Cached"), t("Out")], t("No model has been called yet."), [
    ...sorted.map((each) => [each.purpose, readable(each.model), count(each.input), count(each.cached), count(each.output)]),
  ]);
}

function plugins(rows) {
  const state = (plugin) => {
    const failed = Object.entries(plugin.failures).map(([hook, times]) => tn(times, "{hook} failed once", "{hook} failed {count} times", { hook }));
    return [...plugin.refused, ...failed].join("; ") || "OK";
  };
  const order = (plugin) => (state(plugin) === "OK" ? 2 : 0) + (plugin.ours ? 1 : 0);
  const sorted = [...rows].sort((one, other) => order(one) - order(other));
  return table(t("Plugins"), [t("Plugin"), t("Provides"), t("State")], t("There are no plugins."), [
    ...sorted.map((plugin) => [
      plugin.ours ? plugin.name : t("{name} (third-party)", { name: readable(plugin.name) }),
      provided(plugin),
      state(plugin),
    ]),
  ]);
}

/** Return what a plugin provides; more than FEW items are folded. */
function provided({ provides: names, refused }) {
  if (!names.length) return refused.length ? "–" : t("hooks");
  const all = readable(names.join(", "));
  return names.length <= FEW ? all : h("details", {}, h("summary", {}, tn(names.length, "one item", "{count} items")), all);
}

function providerErrors(rows) {
  if (!rows.length) return null;
  return table(t("Failed provider requests, since the start"), [t("Provider"), t("Kind"), t("Times")], "", [
    ...rows.map((each) => [each.provider, each.kind.replaceAll("_", " "), count(each.count)]),
  ]);
}
