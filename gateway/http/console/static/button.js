// Buttons.
import { fill, h } from "./elements.js";

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
    fill(place, question, " ", yes, " ", button("Cancel", () => (first(), place.querySelector("button").focus())));
    yes.focus();
  };
  first();
  return place;
}
