// The notes: listed, shown, and edited in place. Concurrent changes of others are shown next to one's own, and never
// overwritten without confirmation.

import { askLine, button, guarded } from "../controls.js";
import { fill, h, readable } from "../elements.js";
import { lineChanges } from "./line_changes.js";
import { sentence, size, when } from "../format.js";
import { t, tn } from "../language.js";
import { formsAt, mark } from "../matches.js";
import { renderLines } from "../answer/markdown.js";

const CONFLICT = 409;
const MISSING = 404;
const DRAFTS = "exuvia.note.";

export class NotesView {
  constructor(api) {
    this.api = api;
    this.note = null;
    this.status = h("p", { class: "status", role: "status" });
    this.list = h("ul", { class: "note-list" });
    this.page = h("div", { class: "note-page" }, h("p", { class: "nothing" }, t("Select a note to read it.")));
    this.making = h("input", { id: "new-note", type: "text", placeholder: "memory/travel.md", spellcheck: false });
    this.element = h(
      "section",
      { class: "memory-notes" },
      h(
        "div",
        { class: "note-side" },
        this.status,
        this.list,
        h(
          "form",
          { class: "new-note", on: { submit: (event) => (event.preventDefault(), this.make()) } },
          h("label", { for: "new-note" }, t("New note")),
          this.making,
          h("button", { type: "submit" }, t("Create")),
        ),
      ),
      this.page,
    );
  }

  /** Show the view again, perhaps for certain lines of a note, with the words of a query marked in them. */
  async shown(path, first, last, query) {
    await this.load();
    if (path) await this.open(path, first, last, query);
  }

  async load() {
    try {
      const { notes, index, remarks } = await this.api.get("/api/notes");
      this.status.textContent = [index, ...remarks].join(" · ");
      fill(
        this.list,
        notes.map((note) => this.item(note)),
        notes.length ? null : h("li", { class: "nothing" }, t("There are no notes yet.")),
      );
    } catch (error) {
      this.status.textContent = sentence(error);
    }
  }

  item(note) {
    const isOpen = this.note?.path === note.path;
    return h(
      "li",
      {},
      button(
        [h("span", { class: "path" }, readable(note.path)), h("span", { class: "about" }, `${when(note.changed)} · ${size(note.bytes)}`)],
        () => this.open(note.path),
        { "aria-current": isOpen ? "true" : null },
      ),
    );
  }

  // --- one note ------------------------------------------------------------------------------------------------------

  address(path) {
    return `/api/notes/${path.split("/").map(encodeURIComponent).join("/")}`;
  }

  async open(path, first, last, query = "") {
    let words = "";
    try {
      this.note = await this.api.get(this.address(path)).catch((error) => this.ofOthers(path, error));
      if (first) words = await formsAt(this.api, `${path}#L${first}-L${last}`, query);
    } catch (error) {
      fill(this.page, h("p", { role: "alert" }, sentence(error)));
      return;
    }
    const draft = kept(path);
    if (draft && draft.text !== this.note.text) this.edit(draft.text, draft.digest);
    else this.read(first, last, words);
    if (!first) this.page.scrollIntoView({ block: "nearest" });
    this.load();
  }

  /** A file that the operator has added to the memory (`memory.extra_paths`), which is no note. */
  async ofOthers(path, error) {
    if (error.status !== MISSING) throw error;
    return { ...(await this.api.get(`/api/memory/file?${new URLSearchParams({ path })}`)), added: true };
  }

  make() {
    const path = this.making.value.trim();
    if (!path) return;
    this.note = { path, text: "", digest: null, editable: true };
    this.making.value = "";
    this.edit("", null);
  }

  read(first, last, words = "") {
    const { path, text, editable, added } = this.note;
    const { element, lines } = renderLines("rendered", text, first, last);
    const quote = first && !lines.length ? cited(text, first, last) : null; // of a text that is too long to be rendered
    fill(
      this.page,
      h(
        "header",
        {},
        h("h2", { tabIndex: -1 }, readable(path)),
        editable ? [
          button(t("Edit"), () => this.edit(text, this.note.digest)),
          button(t("Move…"), () => this.move()),
          guarded(t("Delete…"), t("Delete this note?"), t("Delete"), () => this.delete()),
        ] : h("p", {}, added ? t("Read-only: this file was added to the memory by the operator.") : t("Read-only: this note belongs to the owner, or is not valid UTF-8.")),
      ),
      first ? h("p", { class: "status", role: "status" }, linesIn(first, last)) : null,
      quote,
      text.trim() ? element : h("p", { class: "rendered nothing" }, t("This note is empty.")),
    );
    if (first) show(quote ? [quote] : lines, words);
  }

  /** Edit a text that was read when the note had this digest; null where there was none. */
  edit(text, digest) {
    const area = h("textarea", { class: "editor", id: "note-text", spellcheck: true, value: text });
    const state = h("p", { class: "status", role: "status" });
    const save = () => this.save(area.value, digest, state);
    area.addEventListener("input", () => keep(this.note.path, area.value, digest));
    area.addEventListener("keydown", (event) => {
      if ((event.ctrlKey || event.metaKey) && event.key === "s") (event.preventDefault(), save());
    });
    fill(
      this.page,
      h("header", {}, h("h2", {}, readable(this.note.path)), button(t("Save"), save, { class: "primary" }), button(t("Cancel"), () => this.cancel())),
      state,
      h("label", { for: "note-text", class: "unseen" }, t("Text of {path}", { path: readable(this.note.path) })),
      area,
    );
    if (digest !== this.note.digest) state.textContent = t("This is your draft. The note has changed since; saving shows both versions.");
    area.focus();
  }

  cancel() {
    forget(this.note.path);
    if (this.note.digest) this.open(this.note.path);
    else fill(this.page);
  }

  async save(text, digest, state) {
    state.textContent = t("Saving…");
    const { path } = this.note;
    try {
      this.note = await this.api.call("PUT", this.address(path), {
        body: text,
        type: "text/plain; charset=utf-8",
        headers: digest ? { "If-Match": `"${digest}"` } : { "If-None-Match": "*" },
      });
      forget(path);
      this.read();
      this.load();
    } catch (error) {
      if (error.status === CONFLICT) this.conflict(text, error.body.theirs);
      else state.textContent = sentence(error);
    }
  }

  async move() {
    const { path } = this.note;
    const to = await askLine(t("Move the note"), { label: t("New path of {path}", { path: readable(path) }), value: path, action: t("Move"), limit: 200 });
    if (!to || to === path) return;
    await this.change("POST", { body: JSON.stringify({ to }), type: "application/json" }, () => this.open(to));
  }

  async delete() {
    await this.change("DELETE", {}, () => {
      this.note = null;
      fill(this.page, h("p", { class: "nothing", role: "status" }, t("The note was deleted.")));
      this.load();
    });
  }

  /** Change the file of the shown note, if nobody has changed it since. */
  async change(method, body, then) {
    try {
      await this.api.call(method, this.address(this.note.path), { ...body, headers: { "If-Match": `"${this.note.digest}"` } });
      await then();
    } catch (error) {
      this.page.prepend(h("p", { role: "alert" }, sentence(error)));
    }
  }

  /** Show both texts and the choices: nothing is written without a decision. */
  conflict(mine, theirs) {
    const there = theirs ?? { text: "", digest: null };
    const state = h("p", { class: "status", role: "status" });
    const digest = there.digest;
    fill(
      this.page,
      h(
        "section",
        { class: "conflict", role: "alert", "aria-labelledby": "conflict-heading" },
        h("h2", { id: "conflict-heading", tabIndex: -1 }, theirs ? t("Somebody else changed this note") : t("This note was deleted")),
        h(
          "p",
          {},
          theirs
            ? t("Nothing was overwritten. The differences between the saved note and your text are below.")
            : t("It was deleted while you were editing. Your text is kept here."),
        ),
      ),
      h(
        "p",
        { class: "conflict-choices" },
        button(t("Edit mine next to theirs"), () => this.merge(mine, there), { class: "primary" }),
        button(t("Overwrite with mine"), () => this.save(mine, digest, state)),
        button(t("Discard mine"), () => this.cancelFor(theirs)),
      ),
      state,
      changes(there.text, mine),
    );
    this.page.querySelector("#conflict-heading").focus();
  }

  merge(mine, theirs) {
    this.note = { ...this.note, ...theirs, path: this.note.path };
    this.edit(mine, theirs.digest);
    this.page.append(h("h3", {}, t("The saved note")), h("pre", { class: "plain theirs", tabIndex: 0 }, theirs.text));
  }

  cancelFor(theirs) {
    if (!theirs) this.note = { ...this.note, digest: null };
    this.cancel();
  }
}

function linesIn(first, last) {
  return first === last ? t("Line {first}", { first }) : t("Lines {first} to {last}", { first, last });
}

/** The lines that a search found, as they are written. */
function cited(text, first, last) {
  const lines = text.split("\n").slice(first - 1, last);
  return h("figure", {}, h("pre", { class: "plain", tabIndex: 0 }, lines.join("\n")));
}

/** Mark these elements and the words in them, and go to the first of these words. */
function show(elements, words) {
  for (const element of elements) element.classList.add("cited");
  const marks = new Set(mark(elements, words));
  const found = elements.find((element) => [...marks].some((each) => element.contains(each))) ?? elements[0];
  found.tabIndex = -1;
  found.focus({ preventScroll: true });
  found.scrollIntoView({ block: "center" });
}

/** Removed and added lines. */
function changes(theirs, mine) {
  const rows = lineChanges(theirs.split("\n"), mine.split("\n"));
  const added = rows.filter(({ sign }) => sign === "+").length;
  const gone = rows.filter(({ sign }) => sign === "-").length;
  const meaning = { "+": t("only in yours"), "-": t("only in theirs"), " ": "" };
  return h(
    "figure",
    { class: "changes" },
    h("figcaption", {}, `${tn(gone, "one line only in theirs", "{count} lines only in theirs")}, ${tn(added, "one line only in yours", "{count} lines only in yours")}`),
    h(
      "ol",
      {},
      rows.map(({ sign, line }) =>
        h(
          "li",
          { class: { "+": "mine", "-": "theirs", " ": "both" }[sign] },
          h("span", { class: "sign", "aria-hidden": "true" }, sign),
          meaning[sign] ? h("span", { class: "unseen" }, `${meaning[sign]}: `) : null,
          line || " ",
        ),
      ),
    ),
  );
}

// --- drafts: unsaved text survives a reload of the page, in this tab only ----------------------------------------------

function keep(path, text, digest) {
  sessionStorage.setItem(DRAFTS + path, JSON.stringify({ text, digest }));
}

function kept(path) {
  return JSON.parse(sessionStorage.getItem(DRAFTS + path) ?? "null");
}

function forget(path) {
  sessionStorage.removeItem(DRAFTS + path);
}
