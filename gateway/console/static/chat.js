// A conversation: what was said, as it is being said, and the place to write.
import { h } from "./elements.js";

export function mount(element, app, route) {
  app.head(route.key);
  element.append(h("div", { class: "empty" }, h("h2", {}, route.key)));
}
