// The facts, with pins, origins and histories, edited in place. An edit of a text that changed meanwhile is not written over it.

import { button, guarded } from "../controls.js";
import { fill, h, placeOf } from "../elements.js";
import { sentence, when } from "../format.js";
import { t, tn } from "../language.js";

const CONFLICT = 409;
const TYPES = ["fact", "decision", "preference", "convention", "code_context", "pattern"];
const WORKSPACE = "ws:"; // the beginning of tags that limit a fact to a workspace
const [LEAST, GREATEST] = [0.3, 1]; // of the importance
const LAYERS = { longterm: t("Long-term"), daily: t("Daily log") };

export class FactsView {
  constructor(api) {
    this.api = api;
    this.facts = [];
    this.editors = new Map(); // by id: the open form of a fact
    this.words = h("input", { type: "search", id: "fact-words", placeholder: t("Filter"), on: { input: () => this.show() } });
    this.which = h(
      "select",
      { id: "fact-which", on: { change: () => this.show() } },
      h("option", { value: "" }, t("All")),
      h("option", { value: "pinned" }, t("Pinned")),
      Object.entries(LAYERS).map(([layer, name]) => h("option", { value: layer }, name)),
    );
    this.status = h("p", { class: "status", role: "status" });
    this.list = h("ul", { class: "facts" });
    this.element = h(
      "section",
      {},
      h(
        "div",
        { class: "filters" },
        h("label", { for: "fact-words", class: "unseen" }, t("Filter by words")),
        this.words,
        h("label", { for: "fact-which", class: "unseen" }, t("Which facts")),
        this.which,
      ),
      this.status,
      this.list,
    );
  }

  async shown() {
    try {
      this.facts = (await this.api.get("/api/facts")).facts;
      this.show();
    } catch (error) {
      this.status.textContent = sentence(error);
    }
  }

  show() {
    const [words, which] = [this.words.value.trim().toLowerCase(), this.which.value];
    const fits = (fact) =>
      (!which || (which === "pinned" ? fact.pinned : (fact.layer ?? "daily") === which)) &&
      (!words || `${fact.content} ${fact.type ?? "fact"} ${(fact.tags ?? []).join(" ")}`.toLowerCase().includes(words));
    const found = this.facts.filter(fits);
    this.status.textContent = this.facts.length
      ? tn(found.length, "one fact, {pinned} pinned", "{count} facts, {pinned} pinned", { pinned: found.filter((fact) => fact.pinned).length })
      : t("There are no facts yet. Facts from your conversations are stored here automatically.");
    const focused = this.list.contains(document.activeElement) ? document.activeElement : null;
    fill(this.list, found.map((fact) => this.item(fact)));
    if (focused?.dataset.edits) this.focus(focused.dataset.edits);
    else if (focused?.isConnected) focused.focus(); // in an open form
  }

  /** Focus the button that edits a fact. */
  focus(id) {
    this.list.querySelector(`[data-edits="${CSS.escape(id)}"]`)?.focus();
  }

  item(fact) {
    if (this.editors.has(fact.id)) return h("li", { class: "fact" }, this.editors.get(fact.id));
    const story = h("div", { class: "story", hidden: true });
    const why = button(t("Why"), () => this.showHistory(fact, story, why), { "aria-expanded": "false" });
    return h(
      "li",
      { class: fact.pinned ? "fact pinned" : "fact" },
      h("p", { class: "fact-content" }, fact.content),
      h(
        "p",
        { class: "about" },
        fact.pinned ? h("strong", { class: "pin" }, t("Pinned")) : null,
        [fact.type ?? "fact", LAYERS[fact.layer ?? "daily"], when(fact.created), fact.used ? t("recalled {time}", { time: when(fact.used) }) : t("never recalled"),
          fact.edited ? t("edited {time}", { time: when(fact.edited) }) : "", ...wordsOf(fact).map((tag) => `#${tag}`),
          isEverywhere(fact) ? t("in all workspaces") : ""].filter(Boolean).join(" · "),
        h("span", { class: "worth" }, h("meter", { min: 0, max: 1, value: fact.worth, "aria-label": t("Current importance") }), ` ${fact.worth.toFixed(2)}`),
      ),
      h(
        "div",
        { class: "fact-actions" },
        button(t("Edit"), () => this.edit(fact), { "data-edits": fact.id }),
        button(fact.pinned ? t("Unpin") : t("Pin"), () => this.act(() => this.api.call("POST", this.address(fact) + (fact.pinned ? "/unpin" : "/pin")))),
        why,
        guarded(t("Forget"), t("Forget this fact? Its history stays."), t("Forget"), () => this.act(() => this.api.remove(this.address(fact)))),
      ),
      story,
    );
  }

  address(fact) {
    return `/api/facts/${encodeURIComponent(fact.id)}`;
  }

  async act(change) {
    try {
      await change();
      await this.shown();
    } catch (error) {
      this.status.textContent = sentence(error);
    }
  }

  async showHistory(fact, story, why) {
    const isOpen = !story.hidden;
    story.hidden = isOpen;
    why.setAttribute("aria-expanded", String(!isOpen));
    if (isOpen) return;
    try {
      const history = await this.api.get(this.address(fact));
      const origin = history.fact.origin;
      fill(
        story,
        origin ? h("p", {}, history.said
          ? [t("From message {number} of session {session}: “{text}”", { number: origin.seq, session: origin.session, text: history.said.slice(0, 400) }), " ",
            h("a", { href: placeOf(`sessions/${origin.session}.jsonl#L${origin.seq}`) }, t("Open the message"))]
          : t("From message {number} of session {session}.", { number: origin.seq, session: origin.session })) : null,
        h("ul", {}, history.happened.map((each) => this.change(history, each))),
      );
    } catch (error) {
      fill(story, h("p", { role: "alert" }, sentence(error)));
    }
  }
  /** A change in the history of a fact. The text before an edit can be restored, which is another edit. */
  change({ fact, there }, { at, sentence: text, before }) {
    const { content, type = "fact", importance = 0.5 } = before ?? {};
    const restore = () => this.act(() => edited(this.api, this.address(fact), fact.revision, { content, type, importance, tags: wordsOf(before), everywhere: isEverywhere(before) }));
    return h("li", {}, h("time", { dateTime: at }, when(at)), ` ${text.replaceAll("`", "")} `,
      before ? [h("q", {}, before.content), h("span", { class: "about" }, ` ${described(before)} `),
        there ? button(t("Restore"), restore, { class: "worded" }) : null] : null);
  }

  // --- editing -------------------------------------------------------------------------------------------------------

  edit(fact) {
    const editor = new FactEditor(this.api, this.address(fact), fact, (done) => this.close(fact, done));
    this.editors.set(fact.id, editor.element);
    this.show();
    editor.text.focus();
  }

  /** Close an editor, and show what was stored. */
  async close(fact, stored) {
    this.editors.delete(fact.id);
    if (stored) await this.shown();
    else this.show();
    this.focus(fact.id);
  }
}

/** The form of a fact; `close(stored)` is called when it is done. */
class FactEditor {
  constructor(api, address, fact, close) {
    Object.assign(this, { api, address, close, revision: fact.revision });
    const id = (name) => `fact-${name}-${fact.id}`;
    this.text = h("textarea", { id: id("text"), rows: 3, maxLength: 2000, required: true });
    this.type = h("select", { id: id("type") }, TYPES.map((name) => h("option", { value: name }, name)));
    this.tags = h("input", { id: id("tags"), autocomplete: "off", spellcheck: false });
    this.importance = h("input", { id: id("importance"), type: "number", min: LEAST, max: GREATEST, step: "any", required: true });
    this.everywhere = h("input", { type: "checkbox" });
    this.status = h("div", { class: "fact-conflict", role: "alert" });
    const field = (label, input) => h("div", { class: "fact-field" }, h("label", { for: input.id }, label), input);
    this.element = h(
      "form",
      { class: "fact-form", on: { submit: (event) => (event.preventDefault(), this.save()), keydown: (event) => this.onKeydown(event) } },
      field(t("Text"), this.text),
      h("div", { class: "fact-fields" }, field(t("Type"), this.type), field(t("Tags, separated by commas"), this.tags), field(t("Importance"), this.importance)),
      h("label", { class: "check" }, this.everywhere, t("Use it in all workspaces")),
      h("p", { class: "about" }, t("An edited fact is kept as you write it: it is not distilled, replaced or merged any more.")),
      this.status,
      h("div", { class: "fact-actions" }, h("button", { type: "submit", class: "primary" }, t("Save")), button(t("Cancel"), () => this.close(false))),
    );
    this.fill(fact);
  }

  fill(fact) {
    this.text.value = fact.content;
    this.type.value = fact.type ?? "fact";
    this.tags.value = wordsOf(fact).join(", ");
    this.importance.value = fact.importance ?? 0.5;
    this.everywhere.checked = isEverywhere(fact);
  }

  onKeydown(event) {
    if (event.isComposing) return;
    if (event.key === "Escape") this.close(false);
    else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.element.requestSubmit();
    else return;
    event.preventDefault();
  }

  async save() {
    const change = {
      content: this.text.value,
      type: this.type.value,
      tags: this.tags.value.split(",").map((tag) => tag.trim()).filter(Boolean),
      importance: this.importance.valueAsNumber,
      everywhere: this.everywhere.checked,
    };
    try {
      await edited(this.api, this.address, this.revision, change);
      await this.close(true);
    } catch (error) {
      if (error.status === CONFLICT) this.showTheirs(error);
      else fill(this.status, h("p", {}, sentence(error)));
    }
  }

  /** The fact was edited elsewhere: show how, and let the person choose. */
  showTheirs({ body: { theirs } }) {
    const take = () => {
      this.fill(theirs);
      this.settle(theirs);
    };
    fill(this.status,
      h("p", {}, t("This fact was edited meanwhile. It now says:"), " ", h("q", {}, theirs.content), h("span", { class: "about" }, ` ${described(theirs)}`)),
      h("p", { class: "fact-actions" }, button(t("Take that text"), take), button(t("Replace it by mine"), () => (this.settle(theirs), this.save()))));
  }

  settle(theirs) {
    this.revision = theirs.revision;
    fill(this.status);
    this.text.focus();
  }
}

const edited = (api, address, revision, change) =>
  api.call("PATCH", address, { body: JSON.stringify(change), type: "application/json", headers: { "If-Match": `"${revision}"` } });

const wordsOf = ({ tags = [] }) => tags.filter((tag) => !tag.startsWith(WORKSPACE));
const isEverywhere = ({ tags = [] }) => wordsOf({ tags }).length === tags.length;

/** The fields of a fact besides its text. */
const described = (fact) => [fact.type ?? "fact", (fact.importance ?? 0.5).toFixed(2), ...wordsOf(fact).map((tag) => `#${tag}`)].join(" · ");
