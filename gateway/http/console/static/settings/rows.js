// The keys of the configuration as rows: what a key is for on the left, its editor on the right, and what is wrong with it below.

import { fill, h, readable } from "../elements.js";
import { sentence } from "../format.js";
import { icon } from "../icons.js";
import { t } from "../language.js";
import { editorOf, isLong } from "./fields.js";
import { isModel, MODELS, quoted, titleOf, words } from "./groups.js";

const NAME = /^[a-z][a-z0-9_-]{0,31}$/;

/** Return the tables with the keys that `filter` accepts, those that are about to be added too. */
export function tablesOf(draft, filter) {
  const { tables, templates } = draft.report;
  const added = draft.added.flatMap(({ section, name, kind }) =>
    templates.filter((each) => (each.name === section || each.name.startsWith(`${section}.`)) && (each.kind ?? "") === (kind ?? "")).map((each) => ({
      name: moved(each.name, section, name),
      entry: moved(section, section, name),
      added: true,
      keys: each.keys.map((spec) => ({ ...spec, key: moved(spec.key, section, name) })),
    })));
  const found = [...tables, ...added].map((table) => ({ ...table, keys: table.keys.filter((spec) => filter(spec.key, spec)) }));
  const merged = new Map(); // a channel has one table of the gateway's keys and one of its kind's
  for (const table of found.filter(({ keys }) => keys.length)) {
    const known = merged.get(table.name);
    if (known) known.keys.push(...table.keys);
    else merged.set(table.name, table);
  }
  return [...merged.values()];
}

const moved = (path, section, name) => `${section}.${quoted(name)}${path.slice(section.length)}`;

/** Whether a key has all words of a search, in its path, its label or its sentence. */
export function matches(spec, query) {
  const text = `${spec.key} ${words(spec.name)} ${spec.sentence ?? ""}`.toLowerCase();
  return query.split(/\s+/).every((word) => text.includes(word));
}

/** The rows of one table. `again` shows the page anew. */
export class TableRows {
  constructor(table, draft, query, again) {
    this.table = table;
    this.draft = draft;
    this.again = again;
    this.rows = table.keys.filter((spec) => !(table.entry && spec.name === "kind" && !query)).map((spec) => new Row(spec, draft, query, again));
    const list = h("div", { class: "rows" }, this.rows.map((row) => row.element));
    this.summary = h("span", { class: "about" });
    const heading = [h("span", { class: "name" }, title(table)), h("code", {}, `[${table.name}]`), this.summary];
    if (table.name.startsWith("providers.")) {
      this.element = h("details", { class: "settings-table", open: Boolean(query) || draft.under(table.name).length > 0 }, h("summary", {}, heading), list);
    } else {
      this.element = h("section", { class: "settings-table", "aria-label": title(table) }, h("h3", {}, heading, this.removal()), list);
    }
    this.update();
  }

  /** The button that removes a table with everything in it. */
  removal() {
    const { entry, name } = this.table;
    if (entry !== name || this.draft.report.locked) return null;
    if (this.table.added) return h("button", { type: "button", class: "worded", on: { click: () => (this.draft.drop(entry), this.again()) } }, t("Do not add"));
    if (this.table.keys.some((spec) => spec.fixed)) return null;
    const removed = this.draft.changes.get(entry) === null;
    const act = () => {
      this.draft.undo(entry);
      if (!removed) this.draft.set(entry, null);
      this.again();
    };
    return h("button", { type: "button", class: removed ? "worded" : "worded danger", on: { click: act } }, removed ? t("Keep it") : t("Remove"));
  }

  update() {
    const { entry, keys, name } = this.table;
    this.element.classList.toggle("removed", Boolean(entry) && this.draft.changes.get(entry) === null);
    this.rows.forEach((row) => row.update());
    const given = keys.filter((spec) => spec.origin).length;
    const key = keys.find((spec) => spec.name === "api_key" && spec.origin);
    const changed = this.draft.under(name).length;
    const kind = keys.find((spec) => spec.name === "kind");
    fill(this.summary,
      kind && entry ? h("span", { class: "chip" }, kind.value ?? this.draft.changes.get(kind.key)) : null,
      name.startsWith("providers.") && key ? h("span", { class: "chip good" }, icon("tick"), t("key set")) : null,
      name.startsWith("providers.") && given && !key ? h("span", { class: "chip" }, t("configured")) : null,
      this.table.added ? h("span", { class: "chip new" }, t("new")) : changed ? h("span", { class: "chip new" }, t("changed")) : null);
  }

  /** A section of tables whose names people choose, with a form that adds one. */
  static section({ section, add, name: label, none, pattern }, tables, draft, again) {
    const kinds = [...new Set(draft.report.templates.filter((each) => each.name === section && each.kind).map((each) => each.kind))];
    const name = h("input", { type: "text", placeholder: label, "aria-label": label, autocomplete: "off", spellcheck: false });
    const kind = kinds.length ? h("select", { "aria-label": t("Kind") }, kinds.map((each) => h("option", { value: each }, words(each)))) : null;
    const fault = h("p", { class: "settings-fault", role: "alert" });
    const submit = (event) => {
      event.preventDefault();
      const chosen = name.value.trim();
      const taken = tables.some(({ table }) => table.entry === moved(section, section, chosen));
      fault.textContent = "";
      if (taken) fault.textContent = t("{name} exists already.", { name: chosen });
      else if (!(pattern ?? NAME).test(chosen)) fault.textContent = t("A name has up to 32 lower-case letters, digits, _ and -, and begins with a letter.");
      else (draft.add(section, chosen, kind?.value), again());
    };
    const form = draft.report.locked ? null : h("form", { class: "add", on: { submit } }, name, kind, h("button", { type: "submit" }, icon("plus"), add), fault);
    return [...tables.map(({ element }) => element), tables.length ? null : h("p", { class: "nothing" }, none), form];
  }
}

function title(table) {
  return readable(table.entry ? [table.entry.slice(table.entry.indexOf(".") + 1).replaceAll('"', ""), ...table.name.slice(table.entry.length + 1).split(".").filter(Boolean).map(words)].join(" · ") : titleOf(table.name));
}

/** A key with its editor. */
class Row {
  constructor(spec, draft, query, again) {
    this.again = again;
    this.spec = spec;
    this.draft = draft;
    const id = `key-${spec.key.replaceAll(".", "-")}`;
    this.id = id;
    this.editor = h("div", { class: "editor" });
    this.fault = h("p", { class: "settings-fault", id: `${id}-fault` });
    this.undo = h("button", { type: "button", class: "quiet", title: t("Undo this change"), "aria-label": t("Undo this change"), on: { click: () => this.back() } }, icon("undo"));
    this.reset = h("button", { type: "button", class: "link", on: { click: () => this.toDefault() } }, spec.default === undefined ? t("Clear") : t("Use the default"));
    this.notes = h("p", { class: "notes" });
    const isWide = spec.kind.name === "record" || spec.kind.item?.name === "record" || isLong(spec.key);
    this.element = h("div", { class: isWide ? "setting wide" : "setting", "data-key": spec.key },
      h("div", { class: "about" },
        h("div", { class: "label" }, h("label", { id: `${id}-label`, for: id }, marked(words(spec.name), query)), this.undo, h("code", { title: spec.key }, marked(spec.key, query))),
        h("p", { class: "sentence", id: `${id}-about` }, explained(spec.sentence ?? "", query)),
        this.notes),
      h("div", { class: "value" }, this.editor, this.fault, this.reset));
    this.fillEditor();
    this.update();
  }

  get isLocked() {
    return Boolean(this.spec.fixed || this.draft.report.locked);
  }

  fillEditor() {
    const { spec, draft, id } = this;
    const changed = draft.changes.has(spec.key);
    const value = changed ? draft.changes.get(spec.key) ?? undefined : spec.value;
    const removedSecret = changed && spec.kind.name === "secret" && draft.changes.get(spec.key) === null;
    fill(this.editor, editorOf(spec, removedSecret ? null : value, {
      id,
      describedBy: `${id}-about ${id}-fault`,
      disabled: this.isLocked,
      suggestions: isModel(spec.key) ? MODELS : null,
      pending: changed && spec.kind.name === "secret" && !removedSecret,
      move: () => this.move(),
      change: (next) => (next === undefined ? this.back() : this.changed(next)),
      changeEntry: (name, next) => draft.set(`${spec.key}.${name}`, next),
      undoEntry: (name) => draft.undo(`${spec.key}.${name}`),
    }));
  }

  /** Move a secret that stands in the configuration into a file of its own. */
  async move() {
    try {
      await this.draft.move(this.spec.key);
    } catch (error) {
      return void (this.fault.textContent = sentence(error));
    }
    this.again();
    document.getElementById(`${this.id}-label`)?.closest(".setting").querySelector(".editor button")?.focus();
  }

  changed(next) {
    this.draft.set(this.spec.key, next);
    if (next === null && this.spec.kind.name === "secret") this.fillEditor();
  }

  back() {
    this.draft.undo(this.spec.key);
    this.fillEditor();
    this.focus();
  }

  focus() {
    this.editor.querySelector("input, select, textarea, button")?.focus();
  }

  toDefault() {
    this.draft.set(this.spec.key, null);
    this.fillEditor();
  }

  update() {
    const { spec, draft } = this;
    const changed = draft.under(spec.key).length > 0;
    const fault = draft.faultOf(spec.key);
    this.element.classList.toggle("changed", changed);
    this.element.classList.toggle("given", spec.origin === "file" && !changed);
    this.element.classList.toggle("faulty", Boolean(fault));
    this.undo.hidden = !changed;
    this.reset.hidden = changed || spec.origin !== "file" || this.isLocked || spec.kind.name === "secret" || isSecretTable(spec.kind);
    this.fault.textContent = fault;
    this.editor.querySelectorAll("input, select, textarea").forEach((input) => input.setAttribute("aria-invalid", String(Boolean(fault))));
    fill(this.notes, [
      spec.fixed ? t("Set by {origin}, which overrides the file.", { origin: spec.origin }) : null,
      spec.origin && spec.origin !== "file" && !spec.fixed ? t("From {origin}.", { origin: spec.origin }) : null,
      spec.restart ? t("Takes effect after a restart.") : null,
    ].filter(Boolean).join(" "));
  }
}

function isSecretTable(kind) {
  return kind.name === "table" && kind.item?.name === "secret";
}

/** A sentence with its quoted values as code. */
function explained(sentence, query) {
  return sentence.split(/(`[^`]+`|"[^"]+")/).map((piece, index) => (index % 2 ? h("code", {}, marked(piece.slice(1, -1), query)) : marked(piece, query)));
}

/** A text with the words of a search marked. */
function marked(text, query) {
  const wanted = query.split(/\s+/).filter(Boolean);
  const lower = text.toLowerCase();
  const pieces = [];
  let from = 0;
  while (wanted.length) {
    const hits = wanted.map((word) => [lower.indexOf(word, from), word]).filter(([at]) => at >= 0);
    if (!hits.length) break;
    const [at, word] = hits.reduce((first, other) => (other[0] < first[0] ? other : first));
    pieces.push(text.slice(from, at), h("mark", {}, text.slice(at, at + word.length)));
    from = at + word.length;
  }
  return [...pieces, text.slice(from)];
}
