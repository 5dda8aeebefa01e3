// The composer: the input for messages. Drafts stay in this browser until they are sent.
//
//   completions    commands and their arguments, prompt templates, and after an @ notes and files
//   agent_picker, model_picker, options, settings, popup, models   the model of the conversation, and how it is asked
//   dictation      speech as text
//   dropping       files that are dropped or pasted anywhere in the page
import { fill, h, readable } from "../elements.js";
import { icon } from "../icons.js";
import { t } from "../language.js";
import { AgentPicker } from "./agent_picker.js";
import { Completions } from "./completions.js";
import { Dictation } from "./dictation.js";
import { ModelPicker } from "./model_picker.js";
import { Options } from "./options.js";

const COARSE = matchMedia("(pointer: coarse)");
const VARIABLE = /\{\{[^{}\n]{1,60}\}\}/g;

export class Composer {
  /** `send(text, attachments)` and `stop()` are the actions of its buttons; if `send` throws, the draft stays. `settings` are
   * those of the conversation. */
  constructor(app, key, { send, stop, settings }) {
    this.app = app;
    this.place = `exuvia.draft.${key}`;
    this.send = send;
    this.settings = settings;
    this.files = [];
    this.chips = h("ul", { class: "chips", hidden: true, "aria-label": t("Files of this message") });
    const refocus = () => this.focus();
    this.models = new ModelPicker(app, settings, refocus);
    this.options = new Options(settings, this.models, refocus);
    this.agents = new AgentPicker(app, settings, { send: (text) => send(text, []), refocus });
    const drawSettings = () => {
      this.models.draw();
      this.options.draw();
      this.agents.draw();
    };
    settings.addEventListener("change", drawSettings);
    this.models.ready.then(drawSettings);
    this.area = h("textarea", { rows: 1, placeholder: matchMedia("(max-width: 30rem)").matches ? t("Write a message") : t("Write a message, / for commands, @ for files"), "aria-label": t("Message"),
      "aria-controls": "completions", "aria-describedby": "completions-hint", "aria-autocomplete": "list", value: localStorage.getItem(this.place) ?? "",
      on: { input: () => this.onInput(), keydown: (event) => this.onKeydown(event), click: () => this.completions.show(),
        blur: () => setTimeout(() => this.onBlur(), 150) } });
    this.completions = new Completions(app, this.area, { models: this.models, changed: () => this.onInput(), template: () => this.nextVariable(0) });
    this.picker = h("input", { type: "file", multiple: true, hidden: true, "aria-label": t("Files"), tabIndex: -1,
      on: { change: () => this.attach([...this.picker.files]), cancel: () => this.refocus() } });
    this.dictation = new Dictation(app, { insert: (text) => this.writeAtCursor(text), refuse: (sentence) => this.refuse(sentence), refocus });
    this.attachButton = button("attach", t("Attach files"), () => this.picker.click());
    this.stopButton = button("stop", t("Stop (Escape)"), () => {
      stop();
      this.refocus();
    });
    this.sendButton = button("send", t("Send"), () => this.submit());
    this.stopButton.classList.add("stop");
    this.sendButton.classList.add("send");
    this.stopButton.hidden = true;
    this.fault = h("p", { class: "fault small", role: "alert" });
    this.element = h("form", { class: "composer", on: { submit: (event) => { event.preventDefault(); this.submit(); } } },
      this.completions.element, this.models.popup.panel, this.options.popup.panel, this.agents.popup.panel,
      h("div", { class: "box", on: { click: (event) => event.target === event.currentTarget && this.area.focus() } },
        this.chips, this.area,
        h("div", { class: "tools" }, this.attachButton, this.picker, this.agents.popup.button, this.models.popup.button, this.options.popup.button,
          h("span", { class: "space" }), ...this.dictation.elements, this.stopButton, this.sendButton)),
      this.fault);
    requestAnimationFrame(() => this.fit());
    this.enable();
  }

  focus() {
    this.area.focus();
  }

  /** Hide the completions a moment after the input has lost the focus, unless it has it again. */
  onBlur() {
    if (document.activeElement !== this.area) this.completions.hide();
  }

  /** Focus the input, unless that would open an on-screen keyboard. */
  refocus() {
    if (!COARSE.matches) this.area.focus();
  }

  running(runs) {
    this.stopButton.hidden = !runs;
  }

  /** Replace the draft, as if it was typed. */
  write(text) {
    this.area.value = text;
    this.area.focus();
    this.onInput();
  }

  /** Write a text at the cursor, with spaces between it and other words. */
  writeAtCursor(text) {
    const { value, selectionStart: start, selectionEnd: end } = this.area;
    const before = start && !/\s/.test(value[start - 1]) ? " " : "";
    const after = end < value.length && !/\s/.test(value[end]) ? " " : "";
    this.area.setRangeText(before + text + after, start, end, "end");
    this.onInput();
    this.area.focus();
  }

  /** Insert a text and files before the draft. */
  insert(text, attachments = []) {
    this.area.value = [text, this.area.value].filter(Boolean).join("\n\n");
    for (const file of attachments) this.files.push({ ...file, sent: Promise.resolve(file) });
    this.drawChips();
    this.onInput();
    this.area.focus();
  }

  /** Show why the draft was not sent, until it is changed. */
  refuse(sentence) {
    this.fault.textContent = sentence;
  }

  onInput() {
    this.fault.textContent = "";
    keep(this.place, this.area.value);
    this.completions.show();
    this.fit();
    this.enable();
  }

  fit() {
    this.area.style.height = "auto";
    this.area.style.height = `${this.area.scrollHeight}px`;
  }

  get ready() {
    return Boolean(this.area.value.trim() || this.files.length);
  }

  enable() {
    this.sendButton.disabled = !this.ready;
  }

  onKeydown(event) {
    if (event.isComposing) return;
    if (this.completions.onKeydown(event)) event.preventDefault();
    else if (event.key === "Tab" && !event.shiftKey && this.nextVariable(this.area.selectionEnd)) event.preventDefault();
    else if (event.key === "Enter" && !event.shiftKey && (!COARSE.matches || event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      this.submit();
    }
  }

  /** Select the first variable of a template from an offset on; return whether there is one. */
  nextVariable(from) {
    VARIABLE.lastIndex = from;
    const found = VARIABLE.exec(this.area.value);
    if (!found) return false;
    this.area.focus();
    this.area.setSelectionRange(found.index, found.index + found[0].length);
    return true;
  }

  /** Send the draft once its files are uploaded. */
  async submit() {
    if (this.sending || !this.ready) return;
    this.sending = true;
    try {
      const sent = await Promise.all(this.files.map((file) => file.sent)).catch(() => null);
      if (sent === null) return; // the file's chip shows the error; the message waits until it is removed
      this.send(this.area.value.trim(), sent);
      this.files = [];
      this.area.value = "";
      this.drawChips();
      this.onInput();
    } catch (error) {
      this.refuse(error.message);
    } finally {
      this.sending = false;
    }
  }

  // --- files -----------------------------------------------------------------------------------------------------------

  /** Upload files at once; the message waits for them. */
  attach(files) {
    for (const file of files) {
      const sent = this.app.api.upload(file);
      const chip = { name: file.name, media: file.type, preview: URL.createObjectURL(file), sent };
      sent.then(() => (chip.done = true), (error) => (chip.fault = error.message)).then(() => this.drawChips());
      this.files.push(chip);
    }
    this.picker.value = "";
    this.drawChips();
    this.enable();
    this.refocus();
  }

  drawChips() {
    this.chips.hidden = !this.files.length;
    fill(this.chips, this.files.map((file) => this.chip(file)));
  }

  chip(file) {
    const source = file.preview ?? `/attachments/${file.sha256}`;
    const picture = file.media?.startsWith("image/") ? h("img", { src: source, alt: "" }) : icon("attach");
    const remove = button("close", t("Remove {name}", { name: readable(file.name || t("file")) }), () => {
      this.files = this.files.filter((each) => each !== file);
      if (file.preview) URL.revokeObjectURL(file.preview);
      this.drawChips();
      this.enable();
      this.area.focus();
    });
    const state = file.fault ?? (file.done || !file.preview ? "" : t("uploading…"));
    return h("li", { class: file.fault ? "chip failed" : "chip" }, picture, h("span", { class: "name" }, readable(file.name || t("file"))),
      state ? h("span", { class: "faint small", role: "status" }, state) : null, remove);
  }
}

/** Store the draft in this browser, if there is space. */
function keep(place, text) {
  try {
    if (text) localStorage.setItem(place, text);
    else localStorage.removeItem(place);
  } catch {
    localStorage.removeItem(place); // an older draft must not come back instead of this one
  }
}

function button(symbol, words, act) {
  return h("button", { class: "quiet", type: "button", title: words, "aria-label": words, on: { click: act } }, icon(symbol));
}
