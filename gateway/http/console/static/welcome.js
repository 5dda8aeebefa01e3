// The content of an empty conversation: where it will be stored, and who will receive it.
import { fill, h } from "./elements.js";

const PURPOSES = {
  answers: "for answers",
  fallback: "for answers if that fails",
  summaries: "for summaries",
  facts: "for facts",
  vectors: "for search",
};
const LOCAL = /^(localhost|127(\.\d+){3}|\[::1\])$/;

/** Return the element. Its details are filled in once the gateway has sent them. */
export function welcome(app) {
  const list = h("dl", { class: "recipients small" });
  const show = (folder, ...rows) => fill(list, row("Stored", h("dd", {}, folder ? ["on the gateway, in ", h("code", {}, folder)]
    : `on the gateway at ${location.host}`)), rows);
  show(null);
  app.api.get("/api/recipients").then(({ folder, recipients }) => {
    const sent = recipients.filter(({ address }) => address !== "");
    const here = recipients.filter(({ address }) => address === "");
    const none = recipients.some(({ purpose }) => purpose === "answers") ? "nobody" : "nobody: no model is configured yet";
    show(folder, row("Sent to", sent.length ? sent.map(described) : h("dd", {}, none)), here.length ? row("Runs locally", here.map(described)) : null);
  }, () => {}); // offline: the details follow later
  return h("div", { class: "empty hello" }, h("h2", {}, "What can I help you with?"), list);
}

function row(name, ...values) {
  return h("div", {}, h("dt", {}, name), values);
}

function described({ name, purpose, address }) {
  return h("dd", {}, h("b", {}, name), `${placeOf(address)}, ${PURPOSES[purpose] ?? purpose}`);
}

/** The address of a model. A server on the gateway's machine may be a proxy to another one. */
function placeOf(address) {
  if (address === null) return " (address unknown)";
  if (address === "") return "";
  const url = urlOf(address);
  return ` at ${url?.host ?? address}${LOCAL.test(url?.hostname) ? " (the gateway’s machine)" : ""}`;
}

function urlOf(address) {
  try {
    return new URL(address);
  } catch {
    return null;
  }
}
