// The content of an empty conversation: what this is, what to try, where it will be stored, and who will receive it.
import { fill, h } from "../elements.js";
import { icon } from "../icons.js";
import { t, th } from "../language.js";

/** What to try: an icon, a title, and the message, which is put into the composer and not sent. */
const SUGGESTIONS = [
  ["memory", t("Remember something"), t("Remember that my sister’s birthday is on 4 May, and that she likes tulips.")],
  ["search", t("Ask what it knows"), t("What do you know about me, and where did you learn it?")],
  ["tool", t("Let it work"), t("Which files are in the workspace, and what is each of them about?")],
  ["chat", t("Think together"), t("I have to decide between two offers. Ask me one question at a time until we know.")],
];

const PURPOSES = {
  answers: t("for answers"),
  fallback: t("for answers if that fails"),
  summaries: t("for summaries"),
  transcription: t("for what you dictate"),
  facts: t("for facts"),
  vectors: t("for search"),
};
const LOCAL = /^(localhost|127(\.\d+){3}|\[::1\])$/;

/** Return the element. Its details are filled in once the gateway has sent them. */
export function welcome(app, composer) {
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
  return h("div", { class: "empty hello" },
    h("img", { src: new URL("../pictures/icon.svg", import.meta.url).href, alt: "" }),
    h("h2", {}, t("What can I help you with?")),
    h("p", {}, t("An assistant that writes everything into a log of your own: you can see what it saw, what it remembers and why, and take it back.")),
    h("ul", { class: "suggestions" }, SUGGESTIONS.map((each) => suggestion(composer, ...each))),
    list);
}

/** A suggestion takes the place of another one, but never of something that the person wrote. */
function suggestion(composer, name, title, message) {
  const use = () => {
    if (SUGGESTIONS.some(([, , other]) => other === composer.area.value)) composer.area.value = "";
    composer.insert(message);
  };
  return h("li", {}, h("button", { type: "button", on: { click: use } }, icon(name), h("b", {}, title), h("span", {}, message)));
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
