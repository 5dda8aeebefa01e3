// Buttons, and modal dialogs.
import { fill, h } from "./elements.js";
import { t } from "./language.js";

/** Return a button; `more` are further properties. */
export function button(label, click, more = {}) {
  return h("button", { type: "button", on: { click }, ...more }, label);
}

/** Return a button that asks `question` before it calls `act`. */
export function guarded(label, question, sure, act) {
  const place = h("span", { class: "guarded" });
  const first = () => fill(place, button(label, second));
  const second = () => {
    const yes = button(sure, () => act(place), { class: "danger" });
    fill(place, question, " ", yes, " ", button(t("Cancel"), () => (first(), place.querySelector("button").focus())));
    yes.focus();
  };
  first();
  return place;
}

/** Ask for a line of text; resolves to it, or to null if cancelled. */
export function askLine(title, { label, value = "", placeholder = "", action, limit }) {
  const input = h("input", { id: "asked", value, placeholder, maxLength: limit, autocomplete: "off" });
  const form = h("form", { method: "dialog" }, h("h2", {}, title), h("label", { for: "asked", class: "small faint" }, label), input,
    h("div", { class: "choices" }, h("button", { type: "button", on: { click: () => dialog.close("") } }, t("Cancel")),
      h("button", { class: "primary", type: "submit", value: "done" }, action)));
  const dialog = h("dialog", { "aria-label": title }, form);
  document.body.append(dialog);
  dialog.showModal();
  input.select();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "done" ? input.value.trim() : null);
    });
  });
}
