// Buttons.
import { fill, h } from "./elements.js";

/** A button that does something; `more` are further properties. */
export function button(label, click, more = {}) {
  return h("button", { type: "button", on: { click }, ...more }, label);
}

/** A button for what cannot be undone: it asks once more, in `question`, before `act` is called. */
export function guarded(label, question, sure, act) {
  const place = h("span", { class: "guarded" });
  const first = () => fill(place, button(label, second));
  const second = () => {
    const yes = button(sure, () => act(place), { class: "danger" });
    fill(place, question, " ", yes, " ", button("Leave it", () => (first(), place.querySelector("button").focus())));
    yes.focus();
  };
  first();
  return place;
}
