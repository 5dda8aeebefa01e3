// The composer: the input for messages. Drafts stay in this browser until they are sent.
import { fill, h, readable } from "./elements.js";
import { icon } from "./icons.js";

const COARSE = matchMedia("(pointer: coarse)");

export class Composer {
  /** `send(text, attachments)` and `stop()` are the actions of its buttons; if `send` throws, the draft stays. */
  constructor(app, key, { send, stop }) {
    this.app = app;
    this.place = `exuvia.draft.${key}`;
    this.send = send;
    this.files = [];
    this.chips = h("ul", { class: "chips", hidden: true, "aria-label": "Files of this message" });
    this.commands = new Commands(app, { choose: (text) => this.complete(text), mark: (id) => this.mark(id) });
    this.area = h("textarea", { rows: 1, placeholder: "Write a message, or / for commands", "aria-label": "Message",
      "aria-controls": "commands", "aria-autocomplete": "list", value: localStorage.getItem(this.place) ?? "",
      on: { input: () => this.onInput(), keydown: (event) => this.onKeydown(event), paste: (event) => this.onPaste(event),
        blur: () => setTimeout(() => this.onBlur(), 150) } });
    this.picker = h("input", { type: "file", multiple: true, hidden: true, "aria-label": "Files", tabIndex: -1,
      on: { change: () => this.attach([...this.picker.files]), cancel: () => this.refocus() } });
    this.attachButton = button("attach", "Attach files", () => this.picker.click());
    this.stopButton = button("stop", "Stop (Escape)", () => {
      stop();
      this.refocus();
    });
    this.sendButton = button("send", "Send", () => this.submit());
    this.stopButton.classList.add("stop");
    this.sendButton.classList.add("send");
    this.stopButton.hidden = true;
    this.fault = h("p", { class: "fault small", role: "alert" });
    this.element = h("form", { class: "composer", on: { submit: (event) => { event.preventDefault(); this.submit(); } } },
      this.commands.element,
      h("div", { class: "box", on: { click: (event) => event.target === event.currentTarget && this.area.focus() } },
        this.chips, this.area,
        h("div", { class: "tools" }, this.attachButton, this.picker, this.stopButton, this.sendButton)),
      this.fault);
    requestAnimationFrame(() => this.fit());
    this.enable();
  }

  focus() {
    this.area.focus();
  }

  /** Hide the commands a moment after the input has lost the focus, unless it has it again. */
  onBlur() {
    if (document.activeElement !== this.area) this.commands.show("");
  }

  /** Focus the input, unless that would open an on-screen keyboard. */
  refocus() {
    if (!COARSE.matches) this.area.focus();
  }

  running(runs) {
    this.stopButton.hidden = !runs;
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
    this.commands.show(this.area.value);
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
    if (this.commands.onKeydown(event)) event.preventDefault();
    else if (event.key === "Enter" && !event.shiftKey && (!COARSE.matches || event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      this.submit();
    }
  }

  /** Tell screen readers which command is selected; none for an empty id. */
  mark(id) {
    if (id) this.area.setAttribute("aria-activedescendant", id);
    else this.area.removeAttribute("aria-activedescendant");
  }

  complete(text) {
    this.area.value = text;
    this.onInput();
    this.commands.show("");
    this.area.focus();
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

  onPaste(event) {
    const files = [...event.clipboardData.files];
    if (!files.length) return;
    event.preventDefault();
    this.attach(files);
  }

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
    const remove = button("close", `Remove ${readable(file.name || "file")}`, () => {
      this.files = this.files.filter((each) => each !== file);
      if (file.preview) URL.revokeObjectURL(file.preview);
      this.drawChips();
      this.enable();
      this.area.focus();
    });
    const state = file.fault ?? (file.done || !file.preview ? "" : "uploading…");
    return h("li", { class: file.fault ? "chip failed" : "chip" }, picture, h("span", { class: "name" }, readable(file.name || "file")),
      state ? h("span", { class: "faint small", role: "status" }, state) : null, remove);
  }
}

/** The commands that match the text after a slash. `choose(text)` inserts one, `mark(id)` reports the selected one. */
class Commands {
  constructor(app, { choose, mark }) {
    this.app = app;
    this.choose = choose;
    this.mark = mark;
    this.found = [];
    this.at = 0;
    this.element = h("ul", { id: "commands", class: "commands", role: "listbox", "aria-label": "Commands", hidden: true });
  }

  show(text) {
    const typed = /^\/([a-z]*)$/i.exec(text)?.[1];
    const known = this.app.socket.welcome?.commands ?? [];
    this.found = typed === undefined ? [] : known.filter(({ name }) => name.startsWith(typed.toLowerCase()));
    this.at = 0;
    this.draw();
  }

  /** Handle a key; return whether it was for the list. */
  onKeydown({ key, shiftKey }) {
    if (!this.found.length) return false;
    const step = { ArrowDown: 1, ArrowUp: -1 }[key];
    if (step) {
      this.at = (this.at + step + this.found.length) % this.found.length;
      this.draw();
    } else if (key === "Escape") this.show("");
    else if ((key === "Tab" && !shiftKey) || key === "Enter") return this.take(key);
    else return false;
    return true;
  }

  /** Complete the text; a whole command without an argument is sent by Enter as it is. */
  take(key) {
    const chosen = this.found[this.at];
    if (key === "Enter" && this.typedWhole(chosen)) {
      this.show("");
      return false;
    }
    this.choose(`/${chosen.name}${chosen.usage.includes(" ") ? " " : ""}`);
    return true;
  }

  typedWhole({ name }) {
    return document.activeElement.value?.trim().toLowerCase() === `/${name}`;
  }

  draw() {
    this.element.hidden = !this.found.length;
    this.mark(this.found.length ? `command-${this.at}` : "");
    fill(this.element, this.found.map((command, at) =>
      h("li", { id: `command-${at}`, role: "option", "aria-selected": String(at === this.at),
        on: { mousedown: (event) => { event.preventDefault(); this.at = at; this.take("Tab"); } } },
        h("code", {}, command.usage), h("span", { class: "faint" }, command.summary.replaceAll("`", "")))));
    this.element.querySelector('[aria-selected="true"]')?.scrollIntoView({ block: "nearest" });
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
