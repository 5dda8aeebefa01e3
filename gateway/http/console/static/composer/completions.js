// What the text before the caret can become: a command, its argument, a prompt template, or after an @ a note or file.
import { fill, h, readable } from "../elements.js";
import { t } from "../language.js";

const DELAY = 120; // milliseconds without a key before files are searched
const AT = /(^|[\s(])@([^\s@]{0,200})$/;

/** A completion is `{label, detail, text, from}`: the text that replaces the draft from an offset on, for a `file` up to
 * the caret. `whole` is a command that Enter sends as it is; the variables of a `template` are filled in. */
export class Completions {
  /** `models` knows the models; `changed()` is called when the text has changed, `template()` when one was inserted. */
  constructor(app, area, { models, changed, template }) {
    this.app = app;
    this.area = area;
    this.models = models;
    this.changed = changed;
    this.template = template;
    this.found = [];
    this.at = 0;
    this.prompts = null;
    this.searching = null;
    this.list = h("ul", { id: "completions", role: "listbox", "aria-label": t("Completions") });
    this.hint = h("p", { id: "completions-hint", class: "hint" });
    this.element = h("div", { class: "completions", hidden: true }, this.list, this.hint);
  }

  /** Show what fits the text before the caret. */
  show() {
    clearTimeout(this.timer);
    this.searching?.abort();
    const { value, selectionStart } = this.area;
    const before = value.slice(0, selectionStart);
    const at = AT.exec(before);
    const typed = /^\/([a-z_-]*)$/i.exec(value);
    const argument = /^\/([a-z_-]+)[ \t](.*)/is.exec(value);
    fill(this.hint);
    if (typed) this.offer(this.named(typed[1].toLowerCase()));
    else if (argument) this.offer(this.argued(argument[1].toLowerCase(), argument[2].trimStart()));
    else this.offer([]);
    if (at) this.timer = setTimeout(() => this.search(at[2], selectionStart - at[2].length - 1), DELAY);
  }

  hide() {
    clearTimeout(this.timer);
    this.searching?.abort();
    fill(this.hint);
    this.offer([]);
  }

  offer(found) {
    this.found = found;
    this.at = 0;
    this.draw();
  }

  // --- what there is ---------------------------------------------------------------------------------------------------

  get commands() {
    return this.app.socket.welcome?.commands ?? [];
  }

  /** Commands, and the templates of the workspace, whose names begin like this. */
  named(name) {
    this.loadPrompts();
    const commands = this.commands.filter((each) => each.name.startsWith(name)).map((each) => (
      { label: each.usage, detail: plain(each.summary), text: `/${each.name}${each.usage.includes(" ") ? " " : ""}`, from: 0, whole: `/${each.name}` }));
    const prompts = (this.prompts ?? []).filter((each) => `${each.name} ${each.title}`.toLowerCase().includes(name)).map((each) => (
      { label: `/${readable(each.name)}`, detail: readable(each.title), text: each.text, from: 0, template: true }));
    return [...commands, ...prompts];
  }

  /** Load the templates once in a while; what is shown follows. */
  loadPrompts() {
    if (this.prompts !== null) return;
    this.prompts = [];
    this.app.api.get("/api/prompts").then(({ prompts }) => {
      this.prompts = prompts;
      if (document.activeElement === this.area && /^\/[a-z_-]*$/i.test(this.area.value)) this.show();
    }, () => {});
    setTimeout(() => (this.prompts = null), 30_000);
  }

  /** The values of a command's argument; its usage is shown below them. */
  argued(name, argument) {
    const command = this.commands.find((each) => each.name === name);
    if (!command) return [];
    fill(this.hint, usage(command.usage, argument), h("span", {}, plain(command.summary)));
    if (/\s/.test(argument)) return [];
    const from = this.area.value.length - argument.length;
    return this.values(command).filter(({ value }) => value.toLowerCase().includes(argument.toLowerCase()) && value !== argument)
      .slice(0, 50).map(({ value, detail = "" }) => ({ label: readable(value), detail: plain(detail), text: value, from }));
  }

  values({ name, usage: form }) {
    const { list, model } = this.models;
    if (name === "model") return [...(list?.models ?? []).map(({ id }) => ({ value: id })), { value: "auto" }, { value: "default" }];
    if (name === "effort") return [...(model?.efforts ?? []), "default"].map((value) => ({ value }));
    if (name === "help") return this.commands.map((each) => ({ value: each.name, detail: each.summary }));
    const choices = /\[([^[\]\s]+)\]/.exec(form)?.[1].split("|") ?? [];
    return choices.filter((value) => /^[a-z]+$/.test(value) && choices.length > 1).map((value) => ({ value }));
  }

  async search(query, from) {
    const searching = (this.searching = new AbortController());
    try {
      const { files } = await this.app.api.get(`/api/files?q=${encodeURIComponent(query)}`, { signal: searching.signal });
      if (searching.signal.aborted || document.activeElement !== this.area) return;
      this.offer(files.map(({ path, note }) => ({ label: readable(path), detail: note ? t("note") : "", text: `${path} `, from, file: true })));
      if (!files.length && query) fill(this.hint, t("No note or file has this in its path."));
      this.draw();
    } catch (error) {
      if (error.name !== "AbortError") this.offer([]);
    }
  }

  // --- keys ------------------------------------------------------------------------------------------------------------

  /** Handle a key; return whether it was for the list. */
  onKeydown({ key, shiftKey }) {
    if (key === "Escape" && !this.element.hidden) {
      this.hide();
      return true;
    }
    if (!this.found.length) return false;
    const step = { ArrowDown: 1, ArrowUp: -1 }[key];
    if (step) {
      this.at = (this.at + step + this.found.length) % this.found.length;
      this.mark();
      return true;
    }
    return ((key === "Tab" || key === "Enter") && !shiftKey) ? this.take(key) : false;
  }

  /** Complete the text; a whole command without an argument is sent by Enter as it is. */
  take(key) {
    const { text, from, file, template, whole } = this.found[this.at];
    const { area } = this;
    if (key === "Enter" && whole && area.value.trim().toLowerCase() === whole) {
      this.hide();
      return false;
    }
    area.setRangeText(text, from, file ? area.selectionStart : area.value.length, "end");
    this.changed();
    this.area.focus();
    if (whole) this.show();
    else this.hide();
    if (template) this.template();
    return true;
  }

  draw() {
    this.element.hidden = !this.found.length && !this.hint.childNodes.length;
    fill(this.list, this.found.map((each, index) =>
      h("li", { id: `completion-${index}`, role: "option", "aria-selected": "false", title: each.label,
        on: { mousedown: (event) => { event.preventDefault(); this.at = index; this.take("Tab"); } } },
        h("span", { class: "label" }, each.label), each.detail ? h("span", { class: "detail faint" }, each.detail) : null)));
    this.mark();
  }

  mark() {
    [...this.list.children].forEach((row, index) => row.setAttribute("aria-selected", String(index === this.at)));
    const active = this.list.children[this.at];
    if (active) this.area.setAttribute("aria-activedescendant", active.id);
    else this.area.removeAttribute("aria-activedescendant");
    active?.scrollIntoView({ block: "nearest" });
  }
}

/** The usage of a command, with the argument that is being typed marked. */
function usage(form, argument) {
  const [name, ...parts] = wordsOf(form);
  const index = Math.min(argument.split(/\s+/).length, parts.length) - 1;
  return h("code", {}, name, parts.map((part, each) => [" ", each === index ? h("mark", {}, part) : part]));
}

/** Return the words of a usage; what stands in brackets is one word. */
function wordsOf(form) {
  const words = [""];
  let depth = 0;
  for (const letter of form) {
    if (letter === " " && depth === 0) words.push("");
    else words[words.length - 1] += letter;
    depth += (letter === "[") - (letter === "]");
  }
  return words.filter(Boolean);
}

const plain = (text) => text.replaceAll("`", "");
