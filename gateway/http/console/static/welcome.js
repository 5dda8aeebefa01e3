// The content of an empty conversation: where it will be stored, and who will receive it.
import { fill, h } from "./elements.js";
import { t, th } from "./language.js";

const PURPOSES = {
  answers: t("for answers"),
  fallback: t("for answers if that fails"),
  summaries: t("for summaries"),
  facts: t("for facts"),
  vectors: t("for search"),
};
const LOCAL = /^(localhost|127(\.\d+){3}|\[::1\])$/;

/** Return the element. Its details are filled in once the gateway has sent them. */
export function welcome(app) {
  const list = h("dl", { class: "recipients small" });
  const show = (folder, ...rows) => fill(list, row(t("Stored"), h("dd", {}, folder
    ? th("on the gateway, in {folder}", { folder: h("code", {}, folder) })
    : t("on the gateway at {host}", { host: location.host }))), rows);
  show(null);
  app.api.get("/api/recipients").then(({ folder, recipients }) => {
    const sent = recipients.filter(({ address }) => address !== "");
    const here = recipients.filter(({ address }) => address === "");
    const none = recipients.some(({ purpose }) => purpose === "answers") ? t("nobody") : t("nobody: no model is configured yet");
    show(folder, row(t("Sent to"), sent.length ? sent.map(described) : h("dd", {}, none)),
      here.length ? row(t("Runs locally"), here.map(described)) : null);
  }, () => {}); // offline: the details follow later
  return h("div", { class: "empty hello" }, h("h2", {}, t("What can I help you with?")), list);
}

function row(name, ...values) {
  return h("div", {}, h("dt", {}, name), values);
}

function described({ name, purpose, address }) {
  return h("dd", {}, th("{model}{place}, {purpose}", { model: h("b", {}, name), place: placeOf(address), purpose: PURPOSES[purpose] ?? purpose }));
}

/** The address of a model. A server on the gateway's machine may be a proxy to another one. */
function placeOf(address) {
  if (address === null) return t(" (address unknown)");
  if (address === "") return "";
  const url = urlOf(address);
  const host = url?.host ?? address;
  return LOCAL.test(url?.hostname) ? t(" at {host} (the gateway’s machine)", { host }) : t(" at {host}", { host });
}

function urlOf(address) {
  try {
    return new URL(address);
  } catch {
    return null;
  }
}
