// The agent of a conversation: a button with its name, and a panel to choose another one. Without other agents there is none.
import { fill, h, readable } from "../elements.js";
import { icon } from "../icons.js";
import { t } from "../language.js";
import { Popup } from "./popup.js";

const MAIN = "main";

export class AgentPicker {
  /** `settings` are those of the conversation; `send` sends it a command, by which one that exists starts a new session. */
  constructor(app, settings, { send, refocus }) {
    this.app = app;
    this.settings = settings;
    this.send = send;
    this.fresh = !settings.ask;
    this.popup = new Popup({ name: "agents", label: t("Agent"), closed: refocus, opened: (panel) => this.show(panel) });
    const end = app.socket.on("welcome", () => (this.popup.button.isConnected ? this.draw() : end()));
    this.draw();
  }

  get agents() {
    return this.app.socket.welcome?.agents ?? [];
  }

  /** The agent that answers; "" in a new conversation for which none is chosen. */
  get agent() {
    return this.settings.values.agent ?? (this.fresh ? "" : MAIN);
  }

  draw() {
    const name = this.agent ? readable(this.agent) : t("Default");
    this.popup.button.hidden = this.agents.length === 0;
    fill(this.popup.button, icon("people"), h("span", { class: "chosen" }, name));
    this.popup.button.title = t("Agent: {name}", { name });
    this.popup.button.setAttribute("aria-label", this.popup.button.title);
  }

  show(panel) {
    const names = this.fresh ? ["", ...this.agents] : this.agents;
    fill(panel, h("p", { class: "heading" }, t("Agent")), h("div", { class: "agents-list" }, names.map((name) => this.choice(name))),
      this.fresh ? null : h("p", { class: "small faint" }, t("Another agent answers in a new session of this conversation, and sees nothing of the earlier one.")));
    return panel.querySelector("[aria-pressed=true]");
  }

  choice(name) {
    const act = () => {
      if (this.fresh) this.settings.set("agent", name || null);
      else if (name !== this.agent) this.send(`/agent ${name}`);
      this.popup.close();
    };
    return h("button", { type: "button", class: "quiet agent", "aria-pressed": String(name === this.agent), on: { click: act } },
      h("span", { class: "name" }, name ? readable(name) : t("Default")),
      name ? null : h("span", { class: "small faint" }, t("as the routes in the configuration say")));
  }
}
