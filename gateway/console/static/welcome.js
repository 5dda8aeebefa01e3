// What a conversation shows before anything is said: where it will be stored, and to whom it will be sent.
import { fill, h } from "./elements.js";

const PURPOSES = {
  answers: "for answers",
  fallback: "for answers if that fails",
  summaries: "for summaries",
  facts: "for facts",
  vectors: "for search",
};
const LOCAL = /^(localhost|127(\.\d+){3}|\[::1\])$/;

/** An element that says so. What the gateway alone knows is filled in once it has told it. */
export function welcome(app) {
  const list = h("dl", { class: "recipients small" });
  const show = (folder, ...rows) => fill(list, row("Stored", h("dd", {}, folder ? ["on the gateway, in ", h("code", {}, folder)]
    : `on the gateway at ${location.host}`)), rows);
  show(null);
  app.api.get("/api/recipients").then(({ folder, recipients }) => {
    const sent = recipients.filter((each) => !isHere(each));
    const here = recipients.filter(isHere);
    const none = recipients.some(({ purpose }) => purpose === "answers") ? "nobody" : "nobody: there is no model yet that could answer";
    show(folder, row("Sent to", sent.length ? sent.map(described) : h("dd", {}, none)), here.length ? row("Runs there", here.map(described)) : null);
  }, () => {}); // offline: the rest is said once it is known
  return h("div", { class: "empty hello" }, h("h2", {}, "What shall we talk about?"), list);
}

function row(name, ...values) {
  return h("div", {}, h("dt", {}, name), values);
}

function described({ name, purpose, address }) {
  const place = address === null ? " (its plugin does not say where)" : address ? ` at ${urlOf(address)?.host ?? address}` : "";
  return h("dd", {}, h("b", {}, name), `${place}, ${PURPOSES[purpose] ?? purpose}`);
}

/** Whether what a model is sent stays on the gateway's machine. */
function isHere({ address }) {
  return address === "" || LOCAL.test(urlOf(address)?.hostname);
}

function urlOf(address) {
  try {
    return new URL(address);
  } catch {
    return null;
  }
}
