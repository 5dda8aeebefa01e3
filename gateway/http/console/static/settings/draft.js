// Unsaved changes of the configuration: checked by the gateway while one types, written together. They live in memory only,
// since there may be secrets among them, and survive a visit to another page.

import { Refused } from "../api.js";
import { quoted } from "./groups.js";

const TYPING = 250; // milliseconds without a further change before the changes are checked

/** The draft of a person, for as long as this page of the browser lives. */
export function draftOf(app) {
  const known = drafts.get(app.person.id);
  if (known) return known;
  const draft = new Draft(app.api);
  drafts.set(app.person.id, draft);
  return draft;
}

const drafts = new Map();

/** `report` is what the gateway said about the configuration, `changes` has values by keys (null removes), `added` has the new
 * tables, `checked` is what the gateway said about the changes. The event `change` is dispatched after each change of them. */
class Draft extends EventTarget {
  constructor(api) {
    super();
    this.api = api;
    this.report = null;
    this.changes = new Map();
    this.added = [];
    this.forget();
  }

  /** Load the configuration. The changes stay, except those that it has already. */
  async load() {
    this.report = await this.api.get("/api/config");
    this.present = new Map(this.report.tables.flatMap((table) => table.keys).map((each) => [each.key, each]));
    for (const [key, value] of this.changes) if (this.isPresent(key, value)) this.changes.delete(key);
    if (this.changes.size) await this.check();
    this.tell();
  }

  isPresent(key, value) {
    const known = this.present.get(key);
    if (known?.kind.name === "secret") return value === null && !known.origin;
    if (!known) return false;
    return value === null ? known.origin !== "file" : JSON.stringify(value) === JSON.stringify(known.value);
  }

  /** Change a key, or undo its change if it has this value already. */
  set(key, value) {
    if (this.isPresent(key, value)) this.changes.delete(key);
    else this.changes.set(key, value);
    this.changed();
  }

  /** Undo the changes of a key or table and of everything in it. */
  undo(key) {
    for (const each of this.under(key)) this.changes.delete(each);
    this.changed();
  }

  undoAll() {
    this.changes.clear();
    this.added = [];
    this.changed();
  }

  /** The changed keys that are this key, or in this table. */
  under(key) {
    return [...this.changes.keys()].filter((each) => each === key || each.startsWith(`${key}.`));
  }

  add(section, name, kind) {
    this.added.push({ section, name, kind });
    if (kind) this.changes.set(`${section}.${quoted(name)}.kind`, kind);
    this.changed();
  }

  /** Undo the addition of a table. */
  drop(entry) {
    this.added = this.added.filter(({ section, name }) => `${section}.${quoted(name)}` !== entry);
    this.undo(entry);
  }

  /** The sentence about a key that the gateway does not accept; "" if it does. */
  faultOf(key) {
    const found = this.checked.faults.find((fault) => fault.key === key || (!fault.key && fault.sentence.startsWith(`${key} `)));
    return found?.sentence ?? "";
  }

  // --- the gateway -----------------------------------------------------------------------------------------------------

  forget() {
    clearTimeout(this.timer);
    this.checked = { faults: [], warnings: [], asks: [], restart: [] };
  }

  changed() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.check(), TYPING);
    this.tell();
  }

  async check() {
    clearTimeout(this.timer);
    const asked = (this.asked = Symbol("check"));
    if (!this.changes.size) this.forget();
    else {
      try {
        const checked = await this.api.post("/api/config/check", { changes: Object.fromEntries(this.changes) });
        if (this.asked !== asked) return; // something was changed meanwhile
        this.checked = checked;
      } catch (error) {
        if (!(error instanceof Refused)) return; // the gateway is unreachable: saving will say so
        this.checked = { ...this.checked, faults: [{ key: "", sentence: error.message }] };
      }
    }
    this.tell();
  }

  /** Write the changes; resolves to what the reload said. Throws Refused, with its faults shown. */
  async save(confirmed) {
    const body = { changes: Object.fromEntries(this.changes), digest: this.report.digest, confirmed };
    try {
      const said = await this.api.post("/api/config", body);
      this.changes.clear();
      this.added = [];
      this.forget();
      await this.load();
      return said;
    } catch (error) {
      if (error.body?.faults) this.checked = { ...this.checked, faults: error.body.faults };
      this.tell();
      throw error;
    }
  }

  /** Move a secret from the configuration into a file of its own; other changes stay unsaved. Throws Refused. */
  async move(key) {
    await this.api.post("/api/config", { changes: {}, digest: this.report.digest, move: [key] });
    await this.load();
    this.tell();
  }

  tell() {
    this.dispatchEvent(new Event("change"));
  }
}
