// What a person chooses for this browser: the theme, the language, notifications, the installation.
import { button } from "./controls.js";
import { fill, h } from "./elements.js";
import { icon } from "./icons.js";
import { installer, notifications, notifyFromNow } from "./installing.js";
import { LANGUAGES, choose, language, t } from "./language.js";
import * as theme from "./theme.js";

const THEMES = { system: ["screen", t("System")], light: ["light", t("Light")], dark: ["dark", t("Dark")] };
const STATES = {
  off: t("Notify me when something waits"),
  on: t("Notifications are on"),
  denied: t("The browser blocks notifications of this page"),
};

/** Return the button and the panel that it opens. */
export function preferences() {
  const panel = h("div", { id: "preferences", class: "preferences", popover: "auto", role: "dialog", "aria-label": t("Preferences"),
    on: { toggle: ({ newState }) => newState === "open" && show(), keydown: (event) => event.key === "Escape" && event.stopPropagation() } });
  const opener = h("button", { class: "quiet", type: "button", title: t("Preferences"), "aria-label": t("Preferences"),
    popoverTargetElement: panel }, icon("preferences"));
  const show = () => fill(panel, themes(), languages(), news(), application());
  return [opener, panel];
}

function themes() {
  const group = h("fieldset", { class: "segments" }, h("legend", {}, t("Theme")));
  for (const choice of theme.CHOICES) {
    const [name, words] = THEMES[choice];
    group.append(h("label", {}, h("input", { type: "radio", name: "theme", checked: choice === theme.chosen(), class: "unseen",
      on: { change: () => theme.choose(choice) } }), icon(name), words));
  }
  return group;
}

function languages() {
  return h("label", { class: "row" }, t("Language"), h("select", { on: { change: (event) => choose(event.target.value) } },
    Object.entries(LANGUAGES).map(([tag, name]) => h("option", { value: tag, lang: tag, selected: tag === language }, name))));
}

function news() {
  const state = notifications();
  if (!state) return null;
  const place = h("div", {});
  const ask = async () => {
    await notifyFromNow(state === "off");
    place.replaceWith(news());
  };
  return fill(place, button(STATES[state], ask, { disabled: state === "denied", "aria-pressed": String(state === "on") }));
}

function application() {
  const prompt = installer();
  return prompt && button(t("Install as an application"), prompt);
}
