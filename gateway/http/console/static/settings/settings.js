// The page `#/settings`: every key of the configuration, in groups, with a search over all of them; changes are shown, checked
// while one types, and saved together. `#/settings/GROUP` and `#/settings/KEY` open a group, and a key in it. Other people than
// the owner see the instructions and their sign-ins.
//
//   draft          the unsaved changes, and what the gateway says about them
//   groups         the groups, and the words for keys
//   rows           a key, a table of keys, and a table that can be added or removed
//   fields         editors of values by their kind
//   save_bar       what is changed, its faults, undo and save, and what the reload said
//   instructions   AGENTS.md and SOUL.md
//   browsers       the browsers that are signed in

import { fill, h } from "../elements.js";
import { sentence } from "../format.js";
import { icon } from "../icons.js";
import { t, tn } from "../language.js";
import { SignedInBrowsers } from "./browsers.js";
import { draftOf } from "./draft.js";
import { GROUPS, groupOf, MODELS, titleOf } from "./groups.js";
import { Instructions } from "./instructions.js";
import { matches, TableRows, tablesOf } from "./rows.js";
import { SaveBar } from "./save_bar.js";

const OWNER = "owner";

/** Show the settings in an element; returns a function that removes them. */
export async function mount(element, app, { key }) {
  await app.styles("settings/settings.css");
  const page = new SettingsPage(element, app, key);
  await page.load();
  return () => page.end();
}

class SettingsPage {
  constructor(element, app, key) {
    this.app = app;
    this.isOwner = app.person.id === OWNER;
    this.draft = draftOf(app);
    this.wanted = key;
    this.groups = this.isOwner ? GROUPS : GROUPS.filter(({ personal }) => personal);
    this.group = this.groups.find(({ id }) => id === key) ?? this.groups.find(({ id }) => id === groupOf(key || "-")) ?? this.groups[0];
    if (!key) [this.group] = this.groups;
    this.rows = [];
    app.head(t("Settings"));
    this.search = h("input", { type: "search", id: "settings-search", placeholder: t("Search all settings"), "aria-label": t("Search all settings"), autocomplete: "off", on: { input: () => this.show() } });
    this.links = new Map(this.groups.map((group) => [group.id, this.link(group)]));
    this.state = h("div", { class: "settings-state", role: "status" });
    this.content = h("div", { class: "settings-content" });
    this.models = h("datalist", { id: MODELS });
    this.bar = new SaveBar(app, this.draft, () => this.show());
    fill(element, h("div", { class: "settings-page" },
      h("div", { class: "settings-side" },
        this.isOwner ? h("div", { class: "field" }, icon("search"), this.search) : null,
        h("nav", { "aria-label": t("Groups of settings") }, h("ul", { class: "settings-groups" }, [...this.links.values()].map((link) => h("li", {}, link))))),
      h("div", { class: "settings-main" }, this.state, this.content, this.models, this.bar.element)));
    this.update = () => this.updated();
    this.draft.addEventListener("change", this.update);
    this.guard = (event) => (this.draft.changes.size || this.instructions?.isChanged) && event.preventDefault();
    addEventListener("beforeunload", this.guard);
    this.finder = (event) => this.find(event);
    addEventListener("keydown", this.finder);
  }

  end() {
    this.draft.removeEventListener("change", this.update);
    removeEventListener("beforeunload", this.guard);
    removeEventListener("keydown", this.finder);
  }

  /** `/` moves to the search, as on other pages with many entries. */
  find(event) {
    if (event.key !== "/" || event.target.closest("input, textarea, select") || !this.isOwner) return;
    event.preventDefault();
    this.search.focus();
  }

  link({ id, icon: name, title }) {
    const mark = h("span", { class: "mark", hidden: true });
    return h("a", { href: `#/settings/${id}`, "data-group": id, on: { click: () => (this.search.value = "") } }, icon(name), h("span", {}, title), mark);
  }

  async load() {
    if (!this.isOwner) return this.show();
    this.show();
    try {
      const before = this.draft.report?.digest;
      await this.draft.load();
      if (before !== this.draft.report.digest || !this.rows.length) this.show();
    } catch (error) {
      this.fault = sentence(error);
      this.show();
    }
    this.reveal();
    this.suggest();
  }

  /** Offer the known models where the name of one is entered; without them it is typed. */
  async suggest() {
    const { models } = await this.app.api.get("/api/models").catch(() => ({ models: [] }));
    fill(this.models, models.map(({ id }) => h("option", { value: id })));
  }

  /** Move to the key of the URL. */
  reveal() {
    const row = this.rows.flatMap((table) => table.rows).find(({ spec }) => spec.key === this.wanted);
    if (!row) return;
    row.element.closest("details")?.setAttribute("open", "");
    row.element.classList.add("wanted");
    row.element.scrollIntoView({ block: "center" });
    row.focus();
    this.wanted = "";
  }

  // --- showing ---------------------------------------------------------------------------------------------------------

  show() {
    const query = this.search.value.trim().toLowerCase();
    this.rows = [];
    for (const [id, link] of this.links) {
      if (id === this.group.id && !query) {
        link.setAttribute("aria-current", "true");
        link.scrollIntoView({ block: "nearest", inline: "center" }); // they stand in a row where the page is narrow
      } else link.removeAttribute("aria-current");
    }
    if (query && this.draft.report) this.showFound(query);
    else {
      const { activeElement } = document; // such as a file that somebody writes while the keys are loaded
      fill(this.content, this.shown(this.group));
      if (this.content.contains(activeElement)) activeElement.focus({ preventScroll: true });
    }
    this.updated();
  }

  shown(group) {
    const missing = this.fault ? h("p", { class: "settings-fault" }, this.fault) : h("p", { class: "nothing" }, t("Loading…"));
    const tables = this.draft.report ? this.tables((key) => groupOf(key) === group.id, group) : group.keys.length && this.isOwner ? missing : null;
    return h("section", { "aria-labelledby": "settings-title" },
      h("h2", { id: "settings-title" }, group.title),
      h("p", { class: "lede" }, group.about),
      group.id === "instructions" ? (this.instructions ??= new Instructions(this.app, this.isOwner)).element : null,
      group.id === "browsers" ? (this.browsers ??= new SignedInBrowsers(this.app)).element : null,
      tables);
  }

  tables(filter, group, query = "") {
    const found = tablesOf(this.draft, filter).map((table) => new TableRows(table, this.draft, query, () => this.show()));
    this.rows.push(...found);
    const plain = found.filter(({ table }) => !table.entry).map(({ element }) => element);
    const sections = (group?.sections ?? []).map((section) => {
      const own = found.filter(({ table }) => table.entry?.startsWith(`${section.section}.`));
      return TableRows.section(section, own, this.draft, () => this.show());
    });
    const first = group?.sections?.filter(({ last }) => !last).length;
    return [...(group?.sections ? (first ? [sections, plain] : [plain, h("h3", { class: "part" }, titleOf(group.sections[0].section)), sections]) : [plain, found.filter(({ table }) => table.entry).map(({ element }) => element)])];
  }

  showFound(query) {
    const found = this.groups.map((group) => {
      const tables = this.tables((key, spec) => groupOf(key) === group.id && matches(spec, query), null, query).flat();
      return tables.length ? h("section", { class: "found" }, h("h2", {}, group.title), tables) : null;
    });
    const count = this.rows.reduce((sum, { rows }) => sum + rows.length, 0);
    fill(this.content, h("p", { class: "lede", role: "status" }, count ? tn(count, "one setting found", "{count} settings found") : t("No setting has these words.")), found);
  }

  /** Whether a warning is shown here: one about a key is shown in the group of that key. */
  concerns(line) {
    const key = line.slice(0, line.indexOf(" "));
    const isKnown = [...this.draft.present.keys()].some((each) => key === each || key.startsWith(`${each}.`));
    return !isKnown || groupOf(key) === this.group.id;
  }

  /** A sentence of the gateway, with a link to the key that it begins with. */
  linked(line) {
    const key = line.slice(0, line.indexOf(" "));
    return this.draft.present.has(key) ? [h("a", { href: `#/settings/${key}` }, key), line.slice(key.length)] : line;
  }

  /** Show the state of the draft: marks, faults, and what is wrong with the file. */
  updated() {
    this.rows.forEach((table) => table.update());
    for (const [id, link] of this.links) {
      const changed = [...this.draft.changes.keys()].filter((key) => groupOf(key) === id);
      const mark = link.querySelector(".mark");
      mark.hidden = !changed.length;
      mark.textContent = String(changed.length);
      mark.classList.toggle("faulty", changed.some((key) => this.draft.faultOf(key)));
      mark.setAttribute("aria-label", tn(changed.length, "one unsaved change", "{count} unsaved changes"));
    }
    const report = this.draft.report;
    if (report) {
      const lines = [
        report.locked ? t("This configuration can only be looked at. {reason}", { reason: report.locked }) : "",
        report.fault ? t("The gateway keeps an earlier configuration: {reason}", { reason: report.fault }) : "",
        report.waiting.length ? t("These keys wait for a restart: {keys}.", { keys: report.waiting.join(", ") }) : "",
        ...report.faults.filter((fault) => !report.fault?.includes(fault)),
        ...report.warnings.filter((line) => this.concerns(line)).map((line) => line.replaceAll(report.file, report.file.split(/[\\/]/).pop())),
      ];
      fill(this.state, lines.filter(Boolean).map((line) => h("p", { class: line === lines[1] || report.faults.includes(line) ? "wrong" : "note" }, this.linked(line))));
    }
    this.bar.update();
  }
}
