// Two sections of the page `#/health`: the state of the channels, and who may speak on them.

import { button, guarded } from "../controls.js";
import { fill, h, readable } from "../elements.js";
import { count, sentence, when } from "../format.js";
import { t } from "../language.js";
import { table } from "../table.js";

export class ChannelSections {
  constructor(api) {
    this.api = api;
    this.state = h("div");
    this.speakers = h("div", { class: "speakers" });
    this.said = h("p", { class: "nothing", role: "status" });
    this.element = h("div", { class: "tables" }, this.state, this.speakers, this.said);
  }

  /** Show the channels, and load who may speak if there are any. */
  show(channels) {
    fill(this.state, channels.length ? state(channels) : null);
    if (channels.length) this.load();
  }

  async load() {
    try {
      this.showPairings(await this.api.get("/api/pairings"));
    } catch (error) {
      this.said.textContent = sentence(error);
    }
  }

  /** Show the pairings, unless nothing has changed: somebody may be choosing a person. */
  showPairings({ codes, linked, persons }) {
    const key = JSON.stringify([codes.map((each) => each.code), linked, persons]);
    if (this.shown === key) return;
    this.shown = key;
    const asking = codes.map((each) => [each.code, sender(each), this.admission(each, persons)]);
    const admitted = linked.map((each) => [sender(each), each.person, when(each.at), this.removal(each)]);
    fill(
      this.speakers,
      table(t("Senders who ask to speak"), [t("Code"), t("Sender"), t("Admit")],
        t("Nobody asks. An unknown sender who writes is told a code, which is shown here."), asking),
      table(t("Paired senders"), [t("Sender"), t("Person"), t("Since"), t("Change")],
        t("Nobody is paired. Senders in the configuration are not listed here."), admitted),
    );
  }

  /** The choice of the person for whom a sender speaks. None is preselected: it decides what they may do. */
  admission({ code, address }, persons) {
    const choice = h(
      "select",
      { "aria-label": t("The person for whom {address} speaks", { address: readable(address) }) },
      h("option", { value: "" }, t("as …")),
      persons.map((person) => h("option", { value: person }, person === "owner" ? t("owner (all rights)") : person)),
    );
    const admit = button(t("Admit"), () => choice.value && this.act(() => this.api.post("/api/pairings", { code, person: choice.value })), { disabled: true });
    choice.addEventListener("change", () => (admit.disabled = !choice.value));
    return h("span", { class: "admission" }, choice, " ", admit);
  }

  removal({ address }) {
    return guarded(t("Remove"), t("Do not hear this sender any more?"), t("Remove"),
      () => this.act(() => this.api.remove(`/api/pairings/${encodeURIComponent(address)}`)));
  }

  async act(request) {
    try {
      const { address, person } = await request();
      this.said.textContent = t("Changed: {address}, {person}.", { address: readable(address), person });
    } catch (error) {
      this.said.textContent = sentence(error);
    }
    this.shown = null;
    await this.load();
  }
}

function sender({ address, name }) {
  return [readable(address), name ? h("span", { class: "nothing" }, ` “${readable(name)}”`) : null];
}

function state(channels) {
  const rows = channels.map((each) => [
    [each.name, each.kind === each.name ? null : h("span", { class: "nothing" }, ` ${each.kind}`)],
    [t("{state} since {time}", { state: each.connection, time: when(each.since) }), troubles(each)],
    count(each.accepted),
    count(each.delivered),
    count(each.waiting),
  ]);
  return table(t("Channels"), [t("Channel"), t("Connection"), t("In"), t("Out"), t("Waiting")], "", rows);
}

/** What is wrong with a channel, and what waits or was lost because of it. */
function troubles({ problem, waiting, waiting_because, abandoned, abandoned_at, abandoned_because }) {
  const lines = [
    problem,
    waiting && waiting_because && waiting_because !== problem ? t("Waiting: {reason}", { reason: waiting_because }) : "",
    abandoned ? t("{number} never delivered, the last {time}: {reason}", { number: count(abandoned), time: when(abandoned_at), reason: abandoned_because }) : "",
  ].filter(Boolean);
  return lines.map((line) => h("div", { class: "trouble" }, readable(line)));
}
