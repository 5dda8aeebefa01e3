// AGENTS.md and SOUL.md: the operator's instructions, which everybody's conversations begin with. The owner edits them here, and
// nobody's change is overwritten unseen.

import { button } from "../controls.js";
import { fill, h } from "../elements.js";
import { sentence } from "../format.js";
import { t } from "../language.js";

const FILES = [
  ["AGENTS.md", t("How the assistant works: rules, habits, what it should know about you."),
    t("For example: I am a gardener in Leeds. Use metric units. Ask before you change a file.")],
  ["SOUL.md", t("Who the assistant is: its tone and character."), t("For example: Warm and brief. Says when it does not know.")],
];

export class Instructions {
  constructor(app, isOwner) {
    this.files = FILES.map(([name, about, example]) => new InstructionFile(app.api, name, about, example, isOwner));
    this.element = h("div", { class: "instruction-files" }, this.files.map((file) => file.element));
  }

  get isChanged() {
    return this.files.some((file) => file.isChanged);
  }
}

class InstructionFile {
  constructor(api, name, about, example, isOwner) {
    this.api = api;
    this.name = name;
    this.digest = null;
    this.saved = "";
    const id = `file-${name.replace(".", "-").toLowerCase()}`;
    this.area = h("textarea", { id, class: "long", rows: 4, readOnly: true, placeholder: example, "aria-describedby": `${id}-about`, on: { input: () => this.update() } });
    this.save = button(t("Save"), () => this.write(), { class: "primary" });
    this.undo = button(t("Undo"), () => this.show(this.saved));
    this.said = h("p", { class: "notes", role: "status" });
    this.theirs = h("div");
    this.isOwner = isOwner;
    this.body = h("div", { class: "instruction", hidden: true }, this.area, this.theirs, h("div", { class: "file-bar" }, this.said, this.undo, this.save));
    this.none = h("p", { class: "instruction-none" });
    this.element = h("section", { class: "settings-table" },
      h("h3", {}, h("label", { for: id, class: "name" }, name), h("span", { class: "about faint", id: `${id}-about` }, about)),
      this.body, this.none);
    this.load();
  }

  get isChanged() {
    return this.area.value !== this.saved;
  }

  async load() {
    try {
      const note = await this.api.get(`/api/notes/${this.name}`);
      this.digest = note.digest;
      this.area.readOnly = !note.editable;
      this.saved = note.text;
    } catch (error) {
      return void fill(this.none, sentence(error));
    }
    this.show(this.saved);
    if (!this.digest) {
      return void fill(this.none, this.isOwner ? [t("Nothing is written here yet."), " ", button(t("Write {file}", { file: this.name }), () => this.begin(), { class: "worded" })] : t("The owner has written nothing here."));
    }
    this.open();
    if (!this.isOwner) this.said.textContent = t("Only the owner changes this file.");
  }

  open() {
    this.none.remove();
    this.body.hidden = false;
  }

  begin() {
    this.open();
    this.area.focus();
  }

  show(text) {
    this.area.value = text;
    fill(this.theirs);
    this.update();
  }

  update() {
    this.save.hidden = this.undo.hidden = !this.isChanged;
    if (this.isChanged) this.said.textContent = t("Not saved yet.");
    else if (this.said.textContent === t("Not saved yet.")) this.said.textContent = "";
  }

  async write() {
    const { value } = this.area;
    try {
      const headers = this.digest ? { "If-Match": `"${this.digest}"` } : { "If-None-Match": "*" };
      const note = await this.api.call("PUT", `/api/notes/${this.name}`, { body: value, type: "text/markdown", headers });
      [this.digest, this.saved] = [note.digest, value];
      fill(this.theirs);
      this.update();
      this.said.textContent = t("Saved, and used from the next turn on.");
    } catch (error) {
      this.said.textContent = sentence(error);
      if (error.status === 409) this.conflict(error.body.theirs);
    }
  }

  /** Show the other version: saving again replaces it. */
  conflict(theirs) {
    this.digest = theirs?.digest ?? null;
    this.saved = theirs?.text ?? "";
    fill(this.theirs, h("h4", {}, t("The other version, which saving again replaces")), h("pre", { class: "theirs", tabIndex: 0 }, this.saved));
  }
}
