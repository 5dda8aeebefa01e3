// The facts, with pins, origins and histories.

import { button, guarded } from "../controls.js";
import { fill, h } from "../elements.js";
import { sentence, when } from "../format.js";
import { t, tn } from "../language.js";

const LAYERS = { longterm: t("Long-term"), daily: t("Daily log") };

export class FactsView {
  constructor(api) {
    this.api = api;
    this.facts = [];
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
    fill(this.list, found.map((fact) => this.item(fact)));
  }

  item(fact) {
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
        [fact.type ?? "fact", LAYERS[fact.layer ?? "daily"], when(fact.created), fact.used ? t("recalled {time}", { time: when(fact.used) }) : t("never recalled")].join(" · "),
        h("span", { class: "worth" }, h("meter", { min: 0, max: 1, value: fact.worth, "aria-label": t("Current importance") }), ` ${fact.worth.toFixed(2)}`),
      ),
      h(
        "div",
        { class: "fact-actions" },
        button(fact.pinned ? t("Unpin") : t("Pin"), () => this.act("POST", fact, fact.pinned ? "/unpin" : "/pin")),
        why,
        guarded(t("Forget"), t("Forget this fact? Its history stays."), t("Forget"), () => this.act("DELETE", fact, "")),
      ),
      story,
    );
  }

  address(fact) {
    return `/api/facts/${encodeURIComponent(fact.id)}`;
  }

  async act(method, fact, what) {
    try {
      await this.api.call(method, this.address(fact) + what);
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
          ? t("From message {number} of session {session}: “{text}”", { number: origin.seq, session: origin.session, text: history.said.slice(0, 400) })
          : t("From message {number} of session {session}.", { number: origin.seq, session: origin.session })) : null,
        h("ul", {}, history.happened.map((each) => h("li", {}, h("time", { dateTime: each.at }, when(each.at)), ` ${each.sentence.replaceAll("`", "")}`))),
      );
    } catch (error) {
      fill(story, h("p", { role: "alert" }, sentence(error)));
    }
  }
}
