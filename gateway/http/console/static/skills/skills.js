// The page `#/skills/AGENT`: the skills of an agent, where each is, whether models see it, and its text. The owner admits exactly
// the files that were shown, and takes that back.

import { button, guarded } from "../controls.js";
import { fill, h, readable, withoutEscapes } from "../elements.js";
import { sentence } from "../format.js";
import { t } from "../language.js";

const MAIN = "main";

const STATES = {
  admitted: t("admitted"),
  new: t("not admitted yet"),
  changed: t("changed since it was admitted, not used"),
  refused: t("not usable"),
};

/** Show the skills in an element. */
export async function mount(element, app, { key }) {
  await app.styles("skills/skills.css");
  await new SkillsPage(element, app, key || MAIN, await app.socket.agents()).load();
}

class SkillsPage {
  constructor(element, app, agent, agents) {
    this.app = app;
    this.api = app.api;
    this.agent = agent;
    this.status = h("p", { class: "status", role: "status" });
    this.list = h("ul", { class: "skills" });
    fill(element, h("div", { class: "skills-page" }, this.choice(agents), this.status, this.list));
  }

  /** The choice of an agent; null if there is only one. */
  choice(agents) {
    if (!agents.length) return null;
    const select = h("select", { on: { change: () => this.app.go(`#/skills/${encodeURIComponent(select.value)}`) } },
      agents.map((name) => h("option", { value: name, selected: name === this.agent }, name)));
    return h("label", { class: "of-agent" }, t("Agent"), select);
  }

  address(name = "", act = "") {
    const path = ["/api/skills", ...(name ? [encodeURIComponent(name)] : []), ...(act ? [act] : [])].join("/");
    return this.agent === MAIN ? path : `${path}?${new URLSearchParams({ agent: this.agent })}`;
  }

  async load() {
    try {
      this.show(await this.api.get(this.address()));
    } catch (error) {
      this.status.textContent = sentence(error);
    }
  }

  show({ skills, admits }) {
    const admitted = skills.filter(({ state }) => state === "admitted").length;
    this.status.textContent = skills.length
      ? t("{admitted} of {count} skills are admitted", { admitted, count: skills.length })
      : t("There are no skills yet. “exuvia skills add” adds some, or put folders with a SKILL.md into the folder “skills” of the workspace.");
    fill(this.list, skills.map((skill) => this.item(skill, admits)));
  }

  item(skill, admits) {
    const { name, state, description, place, reason, in_catalogue: offered } = skill;
    const hidden = state === "admitted" && !offered ? t("found by a search only: the catalogue has no room for it") : "";
    const about = [place, hidden].filter(Boolean).map(readable).join(" · ");
    return h("li", { class: "skill", tabIndex: -1, "data-name": name },
      h("h2", {}, readable(name), h("span", { class: "standing", "data-state": state }, STATES[state] ?? state)),
      description || reason ? h("p", {}, readable(description || reason)) : null,
      h("p", { class: "about" }, about),
      admits && state !== "refused" ? this.text(skill) : null);
  }

  /** The text of a skill, which is loaded once it is unfolded, with what can be done about it below. */
  text({ name, state }) {
    const inside = h("div", {});
    const load = async () => {
      try {
        const shown = await this.api.get(this.address(name));
        const acts = state === "admitted"
          ? guarded(t("Revoke…"), t("Models see the skill no more from the next turn on."), t("Revoke"), () =>
            this.change(name, "revoke", {}, t("The skill {name} is not admitted any more.", { name })))
          : button(t("Admit exactly this"), () =>
            this.change(name, "admit", { digest: shown.digest }, t("The skill {name} is admitted. Models see it from the next turn on.", { name })));
        fill(inside, h("pre", { class: "plain", tabIndex: 0, "aria-label": t("Text of {path}", { path: name }) }, withoutEscapes(shown.text)), acts);
      } catch (error) {
        fill(inside, h("p", { role: "alert" }, sentence(error)));
      }
    };
    const details = h("details", { on: { toggle: () => details.open && load() } },
      h("summary", {}, state === "changed" ? t("What changed") : t("Its text and files")), inside);
    return details;
  }

  async change(name, act, body, done) {
    try {
      this.show(await this.api.post(this.address(name, act), body));
      this.status.textContent = done;
    } catch (error) {
      await this.load(); // its files may have changed
      this.status.textContent = sentence(error);
    }
    this.list.querySelector(`[data-name="${CSS.escape(name)}"]`)?.focus();
  }
}
